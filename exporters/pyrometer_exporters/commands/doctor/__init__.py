"""The doctor: report which metrics this node's exporter can serve, which it can't, and why."""
