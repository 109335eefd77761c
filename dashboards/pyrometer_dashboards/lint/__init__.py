"""Checks of boards: each is a function from one board, or from all of them, to findings."""
