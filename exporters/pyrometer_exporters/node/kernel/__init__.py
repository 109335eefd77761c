"""Events of the node's hardware, from the kernel's log."""
