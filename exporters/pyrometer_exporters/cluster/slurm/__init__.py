"""Slurm: whether the runs that should train are running or queued, and which nodes are drained or spare."""
