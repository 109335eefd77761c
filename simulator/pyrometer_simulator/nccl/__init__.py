"""NCCL as seen from outside a training job: its communicators, their counts, and the RAS server that reports them."""
