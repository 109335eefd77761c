#!/bin/sh
# After a removal. The state stays, as the configuration does, until a purge; the user stays, as files may be its own.
set -e
root=${DPKG_ROOT:-}
if [ -z "$root" ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
fi
if [ "${1:-}" = purge ]; then
    rm -rf "$root/var/lib/pyrometer" "$root/var/lib/pyrometer-cluster" "$root/etc/pyrometer"
    # Only an empty one: users write there, and what is in it is theirs. It goes with the next boot.
    rmdir "$root/dev/shm/pyrometer" 2>/dev/null || true
fi
