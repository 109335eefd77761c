"""Prometheus's targets from a list of hosts or from Slurm's `sinfo`: files for file_sd with cluster, node and rack."""
