#!/bin/sh
# Is this node fit for a job? Asks pyrometer-check, which needs no exporter and no network. What keeps a job away is one
# line, with status 1; status 0 where there is nothing, and also where nothing could be checked, unless PYROMETER_FAIL is
# closed: one mistake, such as a package that went missing, must not drain all nodes (docs/checks.md). That is said on
# standard error, and the alert NodeChecksMissing tells.
#
# Settings, in /etc/pyrometer/slurm.conf or the environment:
#   PYROMETER_CHECK=                  the command, if neither in PATH nor in /opt/pyrometer/bin; for an exporter in a
#                                     container: docker exec pyrometer-node pyrometer-check
#   PYROMETER_CHECK_FLAGS=            more of its flags
#   PYROMETER_IGNORE=                 checks that don't count, a regular expression such as  hca_.*|nvme
#   PYROMETER_PAUSE=2                 seconds until a failure is looked at again: one late answer takes no node away
#   PYROMETER_FAIL=open               closed: status 1 where nothing could be checked
set -u
[ -r "${PYROMETER_CONF:=/etc/pyrometer/slurm.conf}" ] && . "$PYROMETER_CONF"

policy=${PYROMETER_FAIL:-open}
set -f # words of the settings, not names of files
check=${PYROMETER_CHECK:-$(command -v pyrometer-check || echo /opt/pyrometer/bin/pyrometer-check)}
reasons=$($check --reasons "--fail-$policy" "--confirm=${PYROMETER_PAUSE:-2}" \
    ${PYROMETER_IGNORE:+"--ignore=$PYROMETER_IGNORE"} ${PYROMETER_CHECK_FLAGS:-})
status=$?
# 0 and 1: fit, or with warnings. 2 with a line: not fit. Everything else: it could not be checked.
case $status in 0 | 1) exit 0 ;; esac
if [ -z "$reasons" ]; then
    echo "pyrometer: pyrometer-check ended with status $status, the node was not checked" >&2
    [ "$policy" = open ] && exit 0
    reasons="the node could not be checked (pyrometer-check: status $status)"
fi
printf '%s\n' "$reasons"
exit 1
