"""Shared parts of Pyrometer's services: HTTP server, web configuration, logs, flags, clock, Prometheus client."""
