"""The text that Prometheus reads: format 0.0.4 for ``/metrics``, OpenMetrics 1.0 where points carry timestamps.

A writer of our own, because escaping and joining labels is most of the work and labels hardly ever change: each
series' text up to its value is kept between scrapes, and so is each line whose value is that of the previous scrape.
``benchmarks/bench_exposition.py`` compares it with prometheus_client's writer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import compress, count
from operator import itemgetter, ne

from pyrometer_exporters.framework.metrics import NO_SAMPLES, Columns, Family, Sample, Series, columns_of

TEXT_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"

# A job name or a model name can be anything; a longer value is cut, as it would cost every scrape.
MAX_LABEL_CHARACTERS = 256
# More series than a node has; those of runs and jobs that have gone make room.
MAX_SERIES_TEXTS = 50_000

_BEYOND, _INFINITY = float(1 << 63), float("inf")
_LABEL_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_HELP_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n"})


def escape_label(value: str) -> str:
    r"""Escape a label value for the text format: cut at 256 characters, surrogates replaced.

    >>> escape_label('a"b')
    'a\\"b'
    """
    cut = value[:MAX_LABEL_CHARACTERS].translate(_LABEL_ESCAPES)
    # One byte that isn't UTF-8 would lose the whole scrape.
    return cut.encode("utf-8", "replace").decode("utf-8")


def format_value(value: float) -> str:
    """Return the shortest text that reads back as the same number; integers without a point."""
    if type(value) is int and -_BEYOND < value < _BEYOND:
        return str(value)
    number = float(value)
    # Beyond 2**53 a float's digits are not all meant; repr keeps them honest.
    if -_BEYOND < number < _BEYOND:  # neither infinite nor NaN
        return str(int(number)) if number.is_integer() else repr(number)
    if number != number:  # noqa: PLR0124  NaN, without the cost of math.isnan
        return "NaN"
    if number in (_INFINITY, -_INFINITY):
        return "+Inf" if number > 0 else "-Inf"
    return repr(number)


class Renderer:
    """Writes samples as text, and keeps the lines between scrapes.

    Nearly every scrape has the series of the one before, in the same order, and most of their values are the same::

        samples   (SM_CLOCK, gpu 0, 1980)  (SM_CLOCK, gpu 1, 1755)  (UP, gpu 0, 1)
        columns   families, labels: as before, so the lines are used again; values: the second changed
        lines     header, SM_CLOCK{gpu="0"} 1980, SM_CLOCK{gpu="1"} 1755, header, UP{gpu="0"} 1
                                                  only this line is written again
    """

    def __init__(self) -> None:
        self._before = NO_SAMPLES
        self._lines: list[bytes] = []
        """Headers and lines of samples; the last one is not part of the page: repeated series are written there."""
        self._places: list[int] = []
        """For each sample the index of its line."""
        self._series: list[str] = []
        """Each sample's line up to its value: ``pyrometer_gpu_up{gpu="0"} ``."""

    def text(self, samples: Iterable[Sample]) -> bytes:
        """Write format 0.0.4: families together, in order of first sight; a repeated series keeps its first sample."""
        return self.page(columns_of(samples))

    def page(self, columns: Columns) -> bytes:
        """Write samples by column as :meth:`text` does."""
        families, labels, values = columns
        before: Sequence[object] = self._before.values
        if families != self._before.families or labels != self._before.labels:
            self._lay_out(columns)
            before = (None,) * len(values)
        lines, places, series = self._lines, self._places, self._series
        for index in compress(count(), map(ne, values, before)):
            lines[places[index]] = f"{series[index]}{format_value(values[index])}\n".encode()
        self._before = columns
        return b"".join(lines[:-1])

    def _lay_out(self, columns: Columns) -> None:
        """Make room for a line of each series, under the header of its family."""
        self._series = [*map(_series_text, columns.families, columns.labels)]
        self._lines = []
        self._places = [-1] * len(self._series)
        for name, members in _by_name(columns.families).items():
            header = _header(columns.families[members[0]], name, _HELP_ESCAPES)
            self._lines.append(header.encode("utf-8", "replace"))
            # Cut or with surrogates replaced, two label sets can become one series: the first sample has the line.
            firsts = {self._series[index]: index for index in reversed(members)}
            for index in sorted(firsts.values()):
                self._places[index] = len(self._lines)
                self._lines.append(b"")
        self._lines.append(b"")


def openmetrics(series: Iterable[Series]) -> bytes:
    """Write OpenMetrics 1.0: points of one series together, in the order given; timestamps in seconds."""
    families: dict[str, tuple[Family, list[tuple[str, Series]]]] = {}
    for member in series:
        family = member.family
        families.setdefault(family.name, (family, []))[1].append((_series_text(family, member.labels), member))
    lines: list[str] = []
    for family, members in families.values():
        # OpenMetrics names a counter without the suffix of its samples, and escapes quotes in help texts too.
        lines.append(_header(family, family.name.removesuffix("_total"), _LABEL_ESCAPES))
        for prefix, member in sorted(members, key=itemgetter(0)):  # cut, two label sets can become one series
            lines += [f"{prefix}{format_value(value)} {at / 1000:.3f}\n" for value, at in member.points]
    return "".join([*lines, "# EOF\n"]).encode("utf-8", "replace")


def openmetrics_page(columns: Columns) -> bytes:
    """Write samples of now as OpenMetrics 1.0, for a scraper that refuses the text format.

    A counter without ``_total``, as dcgm-exporter names its own, is none in OpenMetrics: there its type is unknown.
    """
    names = {family.name for family in columns.families}
    lines: list[str] = []
    for name, members in _by_name(columns.families).items():
        family = columns.families[members[0]]
        base = name.removesuffix("_total")
        if family.type == "counter" and (base == name or base in names):
            lines.append(_header(family, name, _LABEL_ESCAPES, "unknown"))
        else:
            lines.append(_header(family, base if family.type == "counter" else name, _LABEL_ESCAPES))
        first: dict[str, float] = {}
        for index in members:
            first.setdefault(_series_text(columns.families[index], columns.labels[index]), columns.values[index])
        lines += [f"{prefix}{format_value(value)}\n" for prefix, value in first.items()]
    return "".join([*lines, "# EOF\n"]).encode("utf-8", "replace")


def _by_name(families: Iterable[Family]) -> dict[str, list[int]]:
    """Group indexes by name: if two collectors define one family each, two headers would spoil the whole scrape."""
    places: defaultdict[str, list[int]] = defaultdict(list)
    for index, family in enumerate(families):
        places[family.name].append(index)
    return places


def _header(family: Family, name: str, escapes: dict[int, str], kind: str = "") -> str:
    return f"# HELP {name} {family.full_help.translate(escapes)}\n# TYPE {name} {kind or family.type}\n"


@lru_cache(MAX_SERIES_TEXTS)
def _series_text(family: Family, labels: tuple[str, ...]) -> str:
    """Return a series' line up to its value."""
    if not family.labels:
        return f"{family.name} "
    pairs = ",".join(f'{name}="{escape_label(value)}"' for name, value in zip(family.labels, labels, strict=True))
    return f"{family.name}{{{pairs}}} "
