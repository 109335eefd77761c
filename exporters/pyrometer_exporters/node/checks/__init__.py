"""Is this node fit: the checks, the collector that runs them in the background, and ``pyrometer-check``."""
