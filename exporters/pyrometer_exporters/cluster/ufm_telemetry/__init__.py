"""UFM Telemetry: temperatures of switches and of the modules in their ports and the hosts'."""
