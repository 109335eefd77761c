#!/bin/sh
# What must not be lost on this host, into a folder and back: each volume of the project as NAME.tgz, and this checkout's own
# files (.env, secrets, site, targets) as settings.tgz.
#
#   ./state.sh save /backup/2026-01-31                     everything
#   ./state.sh save /backup/2026-01-31 alerting grafana    these volumes only
#   ./state.sh restore /backup/2026-01-31                  every volume that was saved there, in place of what it holds now
#   ./state.sh restore /backup/2026-01-31 alerting         this one only
#
# The programs of a volume are stopped while it is copied, and started again; the others go on meanwhile. Prometheus goes
# on as well where PROMETHEUS_FLAGS has --web.enable-admin-api: a snapshot is saved. To restore, the volumes must exist: on
# a new host unpack settings.tgz here and run `docker compose create` first. The archives hold secrets and are readable
# for you alone. COMPOSE_PROJECT_NAME, COMPOSE_FILE and COMPOSE_PROFILES count, as they do for docker compose.
set -eu
umask 077

fail() {
    echo "$0: $1" >&2
    exit 1
}

volumes() { # by the names that the compose files give them
    docker volume ls --filter "label=com.docker.compose.project=$project" \
        --format '{{.Label "com.docker.compose.volume"}}'
}

volume() { # the engine's own name of one
    docker volume ls --quiet --filter "label=com.docker.compose.project=$project" \
        --filter "label=com.docker.compose.volume=$1"
}

quietly() ( # VOLUME COMMAND...: while nobody writes to the volume
    users=$(docker ps --quiet --filter "volume=$(volume "$1")")
    shift
    trap '[ -z "$users" ] || docker start $users >/dev/null' EXIT
    [ -z "$users" ] || docker stop $users >/dev/null
    "$@"
)

pack() ( # VOLUME [SUBFOLDER]: by root, who may read what belongs to each program's user
    docker run --rm --network=none --user=0:0 --volume="$(volume "$1"):/volume:ro" "$image" \
        tar -C "/volume/${2:-}" --numeric-owner -czf - . >"$folder/$1.part"
    mv "$folder/$1.part" "$folder/$1.tgz"
)

unpack() { # VOLUME: by root, so that everything gets its owner back
    docker run --rm --interactive --network=none --user=0:0 --volume="$(volume "$1"):/volume" "$image" \
        sh -c 'find /volume -mindepth 1 -delete && tar -C /volume --numeric-owner -xzpf -' <"$folder/$1.tgz"
}

snapshot() { # the name of a new one; nothing where Prometheus does not run or may not
    docker compose exec -T prometheus wget -q -O - --post-data= \
        http://127.0.0.1:9090/api/v1/admin/tsdb/snapshot 2>/dev/null | sed -n 's/.*"name":"\([^"]*\)".*/\1/p'
}

save_settings() {
    set --
    for own in .env secrets site targets; do
        [ ! -e "$own" ] || set -- "$@" "$own"
    done
    tar -czf "$folder/settings.tgz" "$@"
    echo "settings: saved"
}

save() {
    taken=
    [ "$1" != prometheus ] || taken=$(snapshot)
    if [ -n "$taken" ]; then
        pack prometheus "snapshots/$taken"
        docker compose exec -T prometheus rm -r "/prometheus/snapshots/$taken"
    else
        quietly "$1" pack "$1"
    fi
}

saved() {
    for archive in "$folder"/*.tgz; do
        basename "$archive" .tgz
    done | grep -vx settings || true
}

case "${1:-} ${2:+folder}" in
    "save folder" | "restore folder") verb=$1 folder=$2 ;;
    *) sed -n '2,/^set/{/^#   /s/^#  / /p}' "$0" >&2; exit 2 ;;
esac
shift 2
[ "$verb" = restore ] || mkdir -p "$folder"
[ -d "$folder" ] || fail "no folder $folder"
folder=$(cd "$folder" && pwd)
cd "$(dirname "$0")"
config=$(docker compose config) || fail "docker compose config fails (see above)"
project=$(echo "$config" | sed -n 's/^name: //p')
image=$(docker compose config --images cluster | head -n 1)

if [ $# -eq 0 ]; then
    [ "$verb" = restore ] || save_settings
    set -- $(if [ "$verb" = save ]; then volumes; else saved; fi)
fi
for name; do # all or nothing
    [ -n "$(volume "$name")" ] || fail "the project $project has no volume $name: docker compose create makes it"
    [ "$verb" = save ] || gzip -t "$folder/$name.tgz" || fail "$folder/$name.tgz can't be restored"
done
for name; do
    if [ "$verb" = save ]; then save "$name"; else quietly "$name" unpack "$name"; fi
    echo "$name: ${verb%e}ed"
done
