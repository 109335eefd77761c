"""The cause of a slow run: evidence from Prometheus, curve signatures, ranked suspects, the cost."""
