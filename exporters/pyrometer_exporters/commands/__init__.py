"""Operators' commands: is a node fit, tests under load, the search for a bad node, the doctor, targets, a GPU."""
