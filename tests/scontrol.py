"""A `scontrol` with a memory, which outlives each call: the files `state`, `comment` and `reason` of `nodes/NODE`.

It lies beside `nodes`. A file `away` there makes it as silent as without its controller; `drained` lists all drains.
"""

from __future__ import annotations

from pathlib import Path

_SCRIPT = """\
#!/bin/sh
cd "$(dirname "$0")/nodes" || exit 1
[ -e ../away ] && { echo 'Unable to contact slurm controller' >&2; exit 1; }
for last in "$@"; do :; done
case "$*" in
*'show node'*)
    [ "$last" = node ] && last=$(ls)
    for node in $last; do
        IFS= read -r state <$node/state; IFS= read -r comment <$node/comment; IFS= read -r reason <$node/reason
        echo "NodeName=$node Arch=x86_64 OS=Linux 5.15 #1 SMP State=$state SHOWN"
    done ;;
*)
    for change in "$@"; do
        case $change in
            nodename=*) node=${change#*=} ;;
            state=drain) echo IDLE+DRAIN >$node/state; echo "$node" >>../drained ;;
            state=resume) echo IDLE >$node/state; echo >$node/reason ;;
            reason=* | comment=*) printf '%s' "${change#*=}" >"$node/${change%%=*}" ;;
        esac
    done ;;
esac
"""


def write(folder: Path, shown: str) -> None:
    """Write it into a folder; `shown` is what it prints of a node behind its state, in words of the shell."""
    path = folder / "scontrol"
    path.write_text(_SCRIPT.replace("SHOWN", shown))
    path.chmod(0o755)
