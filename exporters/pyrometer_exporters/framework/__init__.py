"""The parts that every exporter shares."""
