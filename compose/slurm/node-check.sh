#!/bin/sh
# Is this node fit for a job? Asks pyrometer-check, which needs no exporter and no network.
#
# Status 1 and one line: what keeps a job away. Status 0 and `fit`; or `unknown: ...` where critical checks could not be
# run; or nothing where nobody could look, which standard error says: one mistake, such as a package that went missing, must
# not drain all nodes (docs/checks.md), and the alert NodeChecksMissing tells. PYROMETER_FAIL=closed: status 1 for both.
#
# The line is believed, not the status alone: launchers such as docker have statuses of their own.
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
answer=$($check --reasons "--fail-$policy" "--confirm=${PYROMETER_PAUSE:-2}" \
    ${PYROMETER_IGNORE:+"--ignore=$PYROMETER_IGNORE"} ${PYROMETER_CHECK_FLAGS:-})
status=$?
answer=${answer##*
}
# A check's name has none of a launcher's signs, and is neither its name nor a word that programs begin their errors with.
name=${answer%%: *}
for word in $check sh bash error fatal; do
    [ "${word##*/}" != "$name" ] || name=
done
case $name in *[!a-z0-9_]*) name= ;; esac
case $status:$answer in
    [01]:fit) ;;
    2:"${name:-/}: "?*) printf '%s\n' "$answer"; exit 1 ;; # the name of a check, and what it says
    *)
        case $status:$answer in
            [013]:unknown:\ *) why=${answer#unknown: } ;;
            *)
                why="pyrometer-check ended with status $status" answer=
                echo "pyrometer: $why, the node was not checked" >&2
                ;;
        esac
        [ "$policy" = open ] || { echo "not_checked: $why"; exit 1; }
        ;;
esac
[ -z "$answer" ] || printf '%s\n' "$answer"
