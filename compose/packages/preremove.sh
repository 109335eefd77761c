#!/bin/sh
# Before a removal (remove, 0), not before an upgrade (upgrade, 1).
set -e
case "${1:-}" in
    remove | 0)
        if [ -z "${DPKG_ROOT:-}" ] && [ -d /run/systemd/system ]; then
            systemctl disable --now pyrometer-node-exporter.service pyrometer-cluster-exporter.service || true
        fi
        ;;
esac
