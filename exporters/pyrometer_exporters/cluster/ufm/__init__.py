"""UFM's event log: links, ports, switches and cables as the fabric manager sees them."""
