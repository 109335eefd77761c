#!/bin/sh
# Slurm's Epilog, as root after a job: a GPU or link that the job lost is known before the next one starts. health.sh drains
# the node, with a brake and a way back; status 1 would let Slurm drain it without both.
#
#   Epilog=/etc/pyrometer/slurm/epilog.sh
"$(dirname "$0")/health.sh"
exit 0
