"""What Pyrometer's services share: HTTP server, web configuration, logs, flags, clock, Prometheus client."""
