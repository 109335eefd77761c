"""Checks of boards: each is a function from a board, or from all of them, to findings."""
