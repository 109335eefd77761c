"""NCCL's own view of a job, from its RAS socket."""
