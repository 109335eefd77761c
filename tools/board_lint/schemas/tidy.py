"""Join ts-json-schema-generator's outputs into the committed file: sorted, with its origin and licence."""

import json
import sys
from pathlib import Path

ORIGIN = (
    "Generated from the types of @grafana/schema {}, Copyright Grafana Labs, Apache License 2.0 "
    "(https://www.apache.org/licenses/LICENSE-2.0). Regenerate with tools/board_lint/schemas/regenerate.sh."
)
# Panel names that differ from those of the types' files.
PANELS = {"statetimeline": "state-timeline", "statushistory": "status-history"}

schemas = {}
for path in map(Path, sys.argv[2:]):
    name, _, part = path.stem.partition(".")
    schemas[".".join(filter(None, (PANELS.get(name, name), part)))] = json.loads(path.read_text(encoding="utf-8"))
whole = {"$comment": ORIGIN.format(sys.argv[1]), "schemas": schemas}
json.dump(whole, sys.stdout, sort_keys=True, separators=(",", ":"))
sys.stdout.write("\n")
