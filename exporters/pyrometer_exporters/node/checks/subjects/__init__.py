"""The checks, a family in each file."""
