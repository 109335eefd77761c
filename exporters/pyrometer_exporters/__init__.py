"""Prometheus exporters: what runs on every GPU node."""
