"""The text that Prometheus reads: format 0.0.4 for ``/metrics``, OpenMetrics 1.0 where points carry timestamps.

A writer of our own, because escaping and joining labels is most of the work and labels hardly ever change: each
series' text up to its value is kept between scrapes. ``benchmarks/bench_exposition.py`` compares it with
prometheus_client's writer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from operator import add, itemgetter

from pyrometer_exporters.framework.metrics import Family, Sample, Series

TEXT_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"

# A job name or a model name can be anything; a longer value is cut, as it would cost every scrape.
MAX_LABEL_CHARACTERS = 256
# Label sets that come and go (runs, jobs) must not grow the cache for ever.
MAX_CACHED_LABEL_SETS = 50_000
MAX_CACHED_VALUES = 2048

_BEYOND, _INFINITY = 1 << 63, float("inf")
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
    # Beyond 2**53 a float's digits are not all meant; repr keeps them honest.
    if -_BEYOND < value < _BEYOND:  # neither infinite nor NaN
        whole = int(value)
        return str(whole) if whole == value else repr(float(value))
    if value != value:  # noqa: PLR0124  NaN, without the cost of math.isnan
        return "NaN"
    if value in (_INFINITY, -_INFINITY):
        return "+Inf" if value > 0 else "-Inf"
    return repr(float(value))


class Renderer:
    """Writes samples as text and keeps the label text of each series for the next scrape."""

    def __init__(self) -> None:
        self._prefixes: dict[Family, dict[tuple[str, ...], str]] = {}
        self._headers: dict[Family, str] = {}
        # Most of a node's thousands of values are a few small numbers, such as counts of errors.
        self._line_end = lru_cache(MAX_CACHED_VALUES)(_line_end)

    def text(self, samples: Iterable[Sample]) -> bytes:
        """Write format 0.0.4: families together, in order of first sight; a repeated series keeps its first sample."""
        self._bound_cache()
        families: defaultdict[Family, dict[tuple[str, ...], float]] = defaultdict(dict)
        for family, labels, value in samples:
            families[family].setdefault(labels, value)
        lines: list[str] = []
        for members in _by_name(families).values():
            lines.append(self._header(members[0]))
            lines += self._lines([(family, families[family]) for family in members])
        return "".join(lines).encode("utf-8", "replace")

    def openmetrics(self, series: Iterable[Series]) -> bytes:
        """Write OpenMetrics 1.0: points of one series together, in the order given; timestamps in seconds."""
        self._bound_cache()
        families: dict[str, tuple[Family, list[tuple[str, Series]]]] = {}
        for one in series:
            members = families.setdefault(one.family.name, (one.family, []))[1]
            members.append((self._known_prefixes(one.family, [one.labels])[0], one))
        lines: list[str] = []
        for family, members in families.values():
            # OpenMetrics names a counter without the suffix of its samples, and escapes quotes in help texts too.
            lines.append(_header(family, family.name.removesuffix("_total"), _LABEL_ESCAPES))
            members.sort(key=itemgetter(0))  # cut, two label sets can become one series
            for prefix, one in members:
                lines += [f"{prefix}{format_value(value)} {at / 1000:.3f}\n" for value, at in one.points]
        lines.append("# EOF\n")
        return "".join(lines).encode("utf-8", "replace")

    def _bound_cache(self) -> None:
        if sum(map(len, self._prefixes.values())) > MAX_CACHED_LABEL_SETS:
            self._prefixes.clear()
            self._headers.clear()

    def _header(self, family: Family) -> str:
        header = self._headers.get(family)
        if header is None:
            header = self._headers[family] = _header(family, family.name, _HELP_ESCAPES)
        return header

    def _lines(self, members: Iterable[tuple[Family, Mapping[tuple[str, ...], float]]]) -> Iterable[str]:
        """Write the series of all families of one name, values by label set."""
        prefixes: list[str] = []
        values: list[float] = []
        for family, by_labels in members:
            prefixes += self._known_prefixes(family, by_labels)
            values += by_labels.values()
        if len({*prefixes}) < len(prefixes):  # cut or with surrogates replaced, two label sets can become one series
            first: dict[str, float] = {}
            for prefix, value in zip(prefixes, values, strict=True):
                first.setdefault(prefix, value)
            prefixes, values = [*first], [*first.values()]
        return map(add, prefixes, map(self._line_end, values))

    def _known_prefixes(self, family: Family, label_sets: Collection[tuple[str, ...]]) -> list[str]:
        known = self._prefixes.setdefault(family, {})
        try:
            return [*map(known.__getitem__, label_sets)]
        except KeyError:
            for labels in label_sets:
                if labels not in known:
                    known[labels] = _prefix(family, labels)
            return [*map(known.__getitem__, label_sets)]


def _by_name(families: Iterable[Family]) -> dict[str, list[Family]]:
    """Group by name: if two collectors define one family each, two headers of one name would spoil the whole scrape."""
    found: dict[str, list[Family]] = {}
    for family in families:
        found.setdefault(family.name, []).append(family)
    return found


def _line_end(value: float) -> str:
    return f"{format_value(value)}\n"


def _header(family: Family, name: str, escapes: dict[int, str]) -> str:
    return f"# HELP {name} {family.help.translate(escapes)}\n# TYPE {name} {family.type}\n"


def _prefix(family: Family, labels: tuple[str, ...]) -> str:
    """Return a series' line up to its value."""
    if not family.labels:
        return f"{family.name} "
    pairs = ",".join(f'{name}="{escape_label(value)}"' for name, value in zip(family.labels, labels, strict=True))
    return f"{family.name}{{{pairs}}} "
