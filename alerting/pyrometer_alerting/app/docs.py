"""Write the alerting service's section of ``docs/metrics.md`` from its definitions in metrics.py: ``make docs``.

The rest of the page is the exporters'; the section at its end is replaced.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from pyrometer_alerting.incidents.metrics import FAMILIES, Family

REFRESH = "python -m pyrometer_alerting.app.docs docs/metrics.md"
HEADING = "\n## Alerting service\n"
_SENTENCE = "One on the monitoring host. A histogram has the series `_bucket`, `_sum` and `_count`."


def section() -> str:
    """Return the section as Markdown."""
    rows = ["| name | type | labels | meaning |", "|---|---|---|---|", *map(_row, FAMILIES)]
    return f"{HEADING}\n{_SENTENCE}\n\n" + "\n".join(rows) + "\n"


def main(argv: Sequence[str]) -> int:
    """Write the section into the named page; return the exit status."""
    if len(argv) != 1:
        sys.stderr.write(f"usage: {REFRESH}\n")
        return 2
    page = Path(argv[0])
    page.write_text(page.read_text(encoding="utf-8").partition(HEADING)[0] + section(), encoding="utf-8")
    return 0


def _row(family: Family) -> str:
    labels = ", ".join(f"`{label}`" for label in family.labels)
    return f"| `{family.name}` | {family.type} | {labels} | {family.help} |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
