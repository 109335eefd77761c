"""Write ``docs/metrics.md`` from the definitions in exporters and alerting service: ``make reference``.

python -m tools.metrics_page docs/metrics.md
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pyrometer_alerting.incidents.metrics import FAMILIES as OF_ALERTING
from pyrometer_exporters.framework import gather, service
from pyrometer_exporters.framework.collector import CollectorSpec, discover

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
_ALERTING = """
## Alerting service

One on the monitoring host. A histogram has the series `_bucket`, `_sum` and `_count`.

"""


def exporters() -> Iterator[tuple[str, str, list[CollectorSpec]]]:
    """Yield title, one sentence and collectors of each exporter."""
    for title, name, sentence in _EXPORTERS:
        yield title, sentence, discover(importlib.import_module(name))


def metrics_page() -> str:
    """Return the page as Markdown."""
    parts = [_INTRODUCTION, _table((each.name, each.type, each.labels, each.full_help) for each in OWN_FAMILIES)]
    for title, sentence, specs in exporters():
        parts.append(f"\n## {title}\n\n{sentence}\n")
        for spec in specs:
            off = "" if spec.default_enabled else f" Off unless `--collector.{spec.name}` is given."
            rows = ((each.name, each.type, each.labels, each.full_help) for each in spec.families)
            parts.append(f"\n### {spec.name}\n\n{spec.help}{off}\n\n{_table(rows)}")
    return "".join([*parts, _ALERTING, _table((each.name, each.type, each.labels, each.help) for each in OF_ALERTING)])


def _table(rows: Iterable[tuple[str, str, Iterable[str], str]]) -> str:
    lines = ["| name | type | labels | meaning |", "|---|---|---|---|"]
    for name, kind, labels, meaning in rows:
        lines.append(f"| `{name}` | {kind} | {', '.join(f'`{label}`' for label in labels)} | {_cell(meaning)} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|").replace("<", "&lt;")


def main(arguments: Sequence[str]) -> int:
    """Write the page to the file named; return the exit status."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m tools.metrics_page FILE\n")
        return 2
    Path(arguments[0]).write_text(metrics_page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
