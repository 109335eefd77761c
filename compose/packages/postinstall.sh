#!/bin/sh
# After an installation or an upgrade, of a .deb (configure) or an .rpm (1, 2). DPKG_ROOT: into another root, by dpkg --root.
set -e
root=${DPKG_ROOT:-}
if command -v systemd-sysusers >/dev/null; then
    systemd-sysusers ${root:+--root="$root"} pyrometer.conf
elif [ -z "$root" ] && ! getent passwd pyrometer >/dev/null; then
    groupadd --gid 10935 pyrometer
    useradd --uid 10935 --gid pyrometer --home-dir /var/lib/pyrometer --no-create-home --shell /usr/sbin/nologin pyrometer
fi
if command -v systemd-tmpfiles >/dev/null; then
    systemd-tmpfiles ${root:+--root="$root"} --create pyrometer.conf || true
fi
if [ -z "$root" ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    # Only what runs: nothing is started that nobody asked for.
    systemctl try-restart pyrometer-node-exporter.service pyrometer-cluster-exporter.service || true
fi
