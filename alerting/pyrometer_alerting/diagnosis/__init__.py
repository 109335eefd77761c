"""The cause of a slow run: curves and series from Prometheus, evidence by subject, ranked suspects, the cost."""
