#!/usr/bin/env bash
# What an image contains as CycloneDX 1.5, from the packages of compose/requirements with their hashes, and our wheels.
#     tools/sbom.sh IMAGE PART[,PART...] FILE        make sbom, which installs cyclonedx-py
set -euo pipefail
cd "$(dirname "$0")/.."
project=$(mktemp) && trap 'rm -f "$project"' EXIT
printf '[project]\nname = "pyrometer-%s"\nversion = "%s"\nlicense = "Apache-2.0"\n' "$1" "$(cat VERSION)" >"$project"
{
    tr , '\n' <<<"$2" | sed -E "s/\[.*//; s/^/pyrometer-/; s/^pyrometer-client$/pyrometer/; s/$/==$(cat VERSION)/"
    cat "compose/requirements/$1.txt"
} | cyclonedx-py requirements - --pyproject "$project" --sv 1.5 --of JSON --output-reproducible -o "$3"
