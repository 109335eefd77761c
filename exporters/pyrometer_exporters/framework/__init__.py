"""What every exporter shares."""
