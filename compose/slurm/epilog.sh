#!/bin/sh
# Slurm's Epilog, as root after a job: a GPU or link that the job lost is known before the next one starts. Status 1: Slurm
# drains the node with the reason "Epilog error"; health.sh, which runs each minute, says which part it is.
#
#   Epilog=/etc/pyrometer/slurm/epilog.sh
set -u
if reasons=$("$(dirname "$0")/node-check.sh"); then
    exit 0
fi
echo "pyrometer: $reasons" >&2
exit 1
