"""Active tests: load on idle GPUs, links and disks, by the tools that are installed; and their latest results."""
