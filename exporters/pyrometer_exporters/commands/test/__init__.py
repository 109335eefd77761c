"""``pyrometer-test``: load on idle GPUs, links and disks, by the tools that are installed."""
