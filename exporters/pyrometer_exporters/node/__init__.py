"""The node exporter."""
