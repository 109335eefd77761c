#!/bin/sh
# Start the command of this name with the first Python that is new enough; without the user's own packages and variables.
for python in python3 python3.14 python3.13 python3.12 python3.11 python3.10; do
    if "$python" -I -S -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
        exec "$python" -I "$(dirname "$(readlink -f "$0")")/../lib/start.py" "${0##*/}" "$@"
    fi
done
echo "${0##*/}: no Python 3.10 or newer on PATH: install python3.12" >&2
exit 2
