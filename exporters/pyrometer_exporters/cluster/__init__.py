"""The cluster exporter."""
