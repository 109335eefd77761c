"""Training-side client: one fixed-size record per step into shared memory."""
