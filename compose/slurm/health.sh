#!/bin/sh
# Slurm's HealthCheckProgram: drains a node that can't be given a job, with the reason. In slurm.conf:
#
#   HealthCheckProgram=/etc/pyrometer/slurm/health.sh
#   HealthCheckInterval=60
#   HealthCheckNodeState=ANY
#
# A node that runs a job is drained too: the job goes on, the next one goes elsewhere. Nothing is resumed: whoever repaired
# the node says so (scontrol update nodename=... state=resume).
set -u
node=${SLURMD_NODENAME:-$(hostname -s)}
reasons=$("$(dirname "$0")/node-check.sh") && exit 0

state=$(scontrol --oneliner show node "$node" 2>/dev/null)
case $state in
    *DRAIN* | *State=DOWN*) exit 0 ;; # someone knows; their reason stays
esac
scontrol update nodename="$node" state=drain reason="pyrometer: $reasons"
