"""The kernel's log: what it says about the node's hardware."""
