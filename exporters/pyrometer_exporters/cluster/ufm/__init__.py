"""UFM's event log: what the fabric manager sees of links, ports, switches and cables."""
