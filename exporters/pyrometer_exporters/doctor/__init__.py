"""What this node's exporter can see, what it can't, and why: the program ``pyrometer-doctor``."""
