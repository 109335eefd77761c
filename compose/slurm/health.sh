#!/bin/sh
# Slurm's HealthCheckProgram: drains a node that can't be given a job, with the reason, and resumes it once what failed has
# passed. In slurm.conf:
#
#   HealthCheckProgram=/etc/pyrometer/slurm/health.sh
#   HealthCheckInterval=60
#   HealthCheckNodeState=ANY
#
# prolog.sh and epilog.sh call it, too. Status 1: the node is drained now, the reason is on standard error; else 0. A running
# job goes on, the next one goes elsewhere.
#
# The brake: before it drains, a node writes what failed into its comment (pyrometer-unfit=...), waits, and counts the nodes
# on which the same check failed within 15 minutes. More than 3, or 2 % if that is more, have a common cause: a person
# decides, and none is drained. The word pyrometer-stop in the comment of any node stops all drains.
# No answer from Slurm: nothing is done.
#
# The way back: a node that still has our reason, unchanged, is resumed. If it fails again within a day, it stays drained.
#
# Settings, in /etc/pyrometer/slurm.conf or the environment, besides those of node-check.sh:
#   PYROMETER_DRAIN=on                off: no drains by this node
#   PYROMETER_WAIT=15                 seconds for other nodes to report the same
set -u
[ -r "${PYROMETER_CONF:=/etc/pyrometer/slurm.conf}" ] && . "$PYROMETER_CONF"
set -f
here=$(dirname "$0")
node=${SLURMD_NODENAME:-$(hostname -s)}
memory=${PYROMETER_MEMORY:-/run/pyrometer-slurm} # root's, empty after a boot
window=900 day=86400                             # seconds
passing='filesystem_full|inodes|shared_memory|network_mounts' # come and go with jobs and servers: may return at any time

say() { echo "pyrometer: $*" >&2; logger -t pyrometer -- "$*" 2>/dev/null; }
remember() { mkdir -p -m 0700 "$memory" && echo "$1" >"$memory/state"; } 2>/dev/null
show() { scontrol --all --oneliner show node "$@" 2>/dev/null; }
change() { scontrol update "nodename=$node" "$@" || say "Slurm did not accept: $*"; }

# Sets state, reason, mark, returned and comment (without our words; `?` if it can't be told from other fields).
read_node() {
    line=$1
    field() { printf '%s\n' "$line" | awk "$1"; }
    state=$(field '{ for (i = 1; i <= NF; i++) if (sub(/^State=/, "", $i)) { print $i; exit } }')
    reason=$(field 'sub(/.* Reason=/, "") { sub(/ \[[^]@ ]*@[^] ]*\].*/, ""); print }')
    mark=$(field 'match($0, /pyrometer-unfit=[^ ]*/) { print substr($0, RSTART + 16, RLENGTH - 16) }')
    returned=$(field 'match($0, /pyrometer-back=[0-9]+/) { print substr($0, RSTART + 15, RLENGTH - 15) }')
    comment=$(field '
        gsub(/ Comment=/, "&") > 1 || gsub(/ Reason=/, "&") > 1 { print "?"; exit }
        match($0, / Comment=/) {
            text = substr($0, RSTART + RLENGTH)
            if (match(text, / (Reason|Extra|ResvName)=/)) text = substr(text, 1, RSTART - 1)
            gsub(/ *pyrometer-(unfit|back)=[^ ]*/, "", text)
            sub(/^ +/, "", text)
            if (text != "(null)") print text
        }')
}
# Sets the comment: people's words, when we brought the node back, and the mark, if there is one.
words() { echo "${comment:+$comment }${returned:+pyrometer-back=$returned }${1:+pyrometer-unfit=$1}" | sed 's/ *$//'; }
note() { [ "$comment" = '?' ] || change "comment=$(words "$1")"; }
sum() { printf '%s' "$1" | cksum | cut -d' ' -f1; }

# Resumes the node if it has our reason, unchanged, and nothing of what failed is unknown now. Arg: the answer of node-check.sh
bring_back() {
    failed=${mark%%@*}
    case $mark in *:again:*) return ;; esac
    case $reason in pyrometer:\ *) ;; *) return ;; esac
    [ "${mark##*:}" = "$(sum "$reason")" ] || return
    for name in $(echo "$failed" | tr , ' '); do
        case ", ${1#unknown: }, " in *", $name, "*) return ;; esac
    done
    change state=resume
    returned=$(date +%s)
    note ""
    say "$node is back in service: $failed passed"
}

answer=$("$here/node-check.sh")
if [ $? -eq 0 ]; then
    [ -n "$answer" ] || exit 0                                  # nobody has looked
    [ "$(cat "$memory/state" 2>/dev/null)" != clean ] || exit 0 # there is nothing to take back
    own=$(show "$node") && [ -n "$own" ] || exit 0
    read_node "$own"
    case $state in
        *DRAIN*) bring_back "$answer" ;;
        *DOWN*) ;;
        *)
            [ -z "$mark" ] || note ""
            remember clean
            ;;
    esac
    exit 0
fi

[ "${PYROMETER_DRAIN:-on}" != off ] || { say "not drained (PYROMETER_DRAIN=off): $answer"; exit 0; }
# A common cause is not counted anew each minute: the answer is as long as the cluster.
[ -z "$(find "$memory/shared" -mmin -10 2>/dev/null)" ] || exit 0
own=$(show "$node") && [ -n "$own" ] || { say "Slurm does not answer, nothing is done: $answer"; exit 0; }
read_node "$own"
out() { case $state in *DRAIN* | *DOWN* | *FAIL* | *MAINT*) return 0 ;; *) return 1 ;; esac; }
remember unfit
! out || exit 0 # someone knows; their reason stays

now=$(date +%s)
failed=$(printf '%s\n' "$answer" | awk 'BEGIN { RS = "; |\n" } sub(/: .*/, "") { printf "%s%s", comma, $0; comma = "," }')
case $mark in "$failed"@*) since=${mark#*@}; since=${since%%:*} ;; *) since=$now; note "$failed@$since" ;; esac
sleep "${PYROMETER_WAIT:-15}"
all=$(show) && [ -n "$all" ] || { say "Slurm does not answer, nothing is done: $answer"; exit 0; }
decision=$(printf '%s\n' "$all" | awk -v node="$node" -v names="$failed" -v since="$since" -v window="$window" '
    BEGIN { n = split(names, name, ",") }
    $1 !~ /^NodeName=/ { next }
    { total++ }
    /[ =]pyrometer-stop( |$)/ { stopped = 1 }
    $1 == "NodeName=" node { next }
    match($0, /pyrometer-unfit=[^ ]*/) {
        split(substr($0, RSTART + 16, RLENGTH - 16), part, /[@:]/)
        if (part[2] - since > window || since - part[2] > window) next
        for (k = split(part[1], other, ","); k > 0; k--) count[other[k]]++
    }
    END {
        limit = total * 0.02 > 3 ? total * 0.02 : 3
        for (i = 1; i <= n; i++) if (count[name[i]] + 1 <= limit) alone = 1; else most = count[name[i]] + 1
        print stopped ? "stopped" : alone ? "drain" : "on " most " of " total " nodes"
    }')
case $decision in
    drain) ;;
    stopped) say "not drained, drains are stopped: $answer"; exit 0 ;;
    *)
        { : >"$memory/shared"; } 2>/dev/null
        say "not drained, a common cause ($decision within 15 minutes), decide yourself: $answer"
        exit 0
        ;;
esac
own=$(printf '%s\n' "$all" | awk -v node="$node" '$1 == "NodeName=" node')
[ -n "$own" ] || { say "Slurm's answer lacks $node, nothing is done: $answer"; exit 0; }
read_node "$own"
! out || exit 0 # someone was faster

again=
if [ -n "$returned" ] && [ $((now - returned)) -lt $day ] && echo "$failed" | tr , '\n' | grep -Eqvx "$passing"; then
    again='again within a day: '
fi
reason=$(printf '%s' "pyrometer: $again$answer" | LC_ALL=C tr -c '[:print:]' ' ' | tr '"' "'" | cut -c1-300)
if [ "$comment" = '?' ]; then
    change state=drain "reason=$reason"
else
    change state=drain "reason=$reason" "comment=$(words "$failed@$since:${again:+again:}$(sum "$reason")")"
fi
say "$answer"
exit 1
