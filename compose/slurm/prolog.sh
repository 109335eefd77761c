#!/bin/sh
# Slurm's Prolog, as root before a job: makes the folder for the ranks' rings, removes rings whose ranks are gone, and
# has the node drained where it can't work (health.sh). Status 1: Slurm queues the job again.
#
#   Prolog=/etc/pyrometer/slurm/prolog.sh
set -u
# slurmd gives its programs an environment of its own: settings are in this file, as node-check.sh's are.
[ -r "${PYROMETER_CONF:=/etc/pyrometer/slurm.conf}" ] && . "$PYROMETER_CONF"
rings=${PYROMETER_RINGS:-/dev/shm/pyrometer}

mkdir -p "$rings" && chmod 1777 "$rings"
# A rank holds a lock on its ring for as long as it lives. Ten minutes, so that the exporter has read the end of it.
find "$rings" -maxdepth 1 -type f -name '*.ring*' -mmin +10 -exec flock --nonblock --shared {} rm -f {} \; 2>/dev/null

exec "$(dirname "$0")/health.sh"
