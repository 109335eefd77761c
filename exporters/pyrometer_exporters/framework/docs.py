"""``docs/metrics.md``, written from the families' definitions by ``make docs``; the alerting service adds its own."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pyrometer_exporters.framework import gather, service
from pyrometer_exporters.framework.collector import CollectorSpec, discover
from pyrometer_exporters.framework.metrics import Family

REFRESH = "python -m pyrometer_exporters.framework.docs docs/metrics.md"
OWN_FAMILIES = (*service.FAMILIES, *gather.FAMILIES)

_EXPORTERS = (
    ("Node exporter", "pyrometer_exporters.node", "One per GPU node."),
    ("Cluster exporter", "pyrometer_exporters.cluster", "One on the monitoring host."),
)
_INTRODUCTION = """\
# Metrics

Generated from the definitions in the code: change those, then run `make docs`.

Labels that say where a target is (`cluster`, `node`, `rack`) come from the scrape configuration and are not listed.
A value that can't be read is absent, never frozen and never zero; `pyrometer_down_reason_info` says which and why.

## Every exporter, about itself

Beside these, `process_*` under their usual names.

"""


def exporters() -> Iterator[tuple[str, str, list[CollectorSpec]]]:
    """Yield title, one sentence and collectors of each exporter that this build has."""
    for title, name, sentence in _EXPORTERS:
        if importlib.util.find_spec(name) is not None:
            yield title, sentence, discover(importlib.import_module(name))


def metrics_page() -> str:
    """Write the page as Markdown."""
    parts = [_INTRODUCTION, _table(OWN_FAMILIES)]
    for title, sentence, specs in exporters():
        parts.append(f"\n## {title}\n\n{sentence}\n")
        for spec in specs:
            off = "" if spec.default_enabled else f" Off unless `--collector.{spec.name}` is given."
            parts.append(f"\n### {spec.name}\n\n{spec.help}{off}\n\n{_table(spec.families)}")
    return "".join(parts)


def main(argv: Sequence[str]) -> int:
    """Write the page to the file named; return the exit status."""
    if len(argv) != 1:
        sys.stderr.write(f"usage: {REFRESH}\n")
        return 2
    Path(argv[0]).write_text(metrics_page(), encoding="utf-8")
    return 0


def _table(families: Iterable[Family]) -> str:
    rows = ["| name | type | labels | meaning |", "|---|---|---|---|"]
    for family in families:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        rows.append(f"| `{family.name}` | {family.type} | {labels} | {_cell(family.full_help)} |")
    return "\n".join(rows) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|").replace("<", "&lt;")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
