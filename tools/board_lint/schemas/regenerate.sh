#!/usr/bin/env bash
# Regenerate grafana.schema.json, the JSON Schemas of dashboards and panel options, from Grafana's own TypeScript types.
# Needs node and npm. Usage: tools/board_lint/schemas/regenerate.sh [VERSION of @grafana/schema [FILE beside grafana.schema.json]]
# The other file: tools/board_lint/schemas/regenerate.sh 11.6.0 grafana-11.6.schema.json
set -euo pipefail
version=${1:-12.2.0}
here=$(cd "$(dirname "$0")" && pwd)
out=$here/${2:-grafana.schema.json}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes >/dev/null
npm install --no-audit --no-fund --ignore-scripts --loglevel=error \
  "@grafana/schema@$version" ts-json-schema-generator@2.9.0 typescript@5.9.3
# Older releases have them in another folder.
types=node_modules/@grafana/schema/dist/types/raw
[ -d "$types" ] || types=node_modules/@grafana/schema/dist/esm/raw

schema() { # NAME FILE TYPE: one type's schema; a panel without field settings of its own has no such type
  npx ts-json-schema-generator --path "$2" --type "$3" --no-type-check --no-top-ref --jsDoc none --minify --out "$1.json" ||
    [ "$3" = FieldConfig ]
}
schema dashboard $types/dashboard/x/dashboard_types.gen.d.ts Dashboard
for kind in BarGauge Gauge Heatmap Histogram Stat StateTimeline StatusHistory Table Text TimeSeries XYChart; do
  name=$(tr '[:upper:]' '[:lower:]' <<<"$kind")
  file=$types/composable/$name/panelcfg/x/${kind}PanelCfg_types.gen.d.ts
  schema "$name.options" "$file" Options
  if grep -q 'interface FieldConfig' "$file"; then schema "$name.custom" "$file" FieldConfig; fi
done
python3 "$here/tidy.py" "$version" ./*.options.json ./*.custom.json dashboard.json >"$out"
echo "wrote $out for @grafana/schema $version"
