"""Active tests: the latest results of ``pyrometer-test``, which puts load on idle GPUs, links and disks."""
