"""The text that Prometheus reads: format 0.0.4 for ``/metrics``, OpenMetrics 1.0 where points carry timestamps.

A writer of our own, because escaping and joining labels is most of the work and labels hardly ever change: each
series' text up to its value is kept between scrapes. So is the text of a family whose samples are equal to those of the
previous scrape. ``benchmarks/bench_exposition.py`` compares it with prometheus_client's writer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from operator import itemgetter

from pyrometer_exporters.framework.metrics import Family, Sample, Series

TEXT_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"

# A job name or a model name can be anything; a longer value is cut, as it would cost every scrape.
MAX_LABEL_CHARACTERS = 256
# Label sets that come and go (runs, jobs) must not grow the cache for ever.
MAX_CACHED_LABEL_SETS = 50_000

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
    """Writes samples as text; keeps the text of labels, and of families that did not change, between scrapes."""

    def __init__(self) -> None:
        self._prefixes: defaultdict[Family, dict[tuple[str, ...], str]] = defaultdict(dict)
        self._written: dict[str, tuple[list[Sample], bytes]] = {}
        """The samples and the text of each family in the previous scrape, by name."""

    def text(self, samples: Iterable[Sample]) -> bytes:
        """Write format 0.0.4: families together, in order of first sight; a repeated series keeps its first sample."""
        self._bound_cache()
        before, self._written = self._written, {}
        for name, members in _by_name(samples).items():
            known = before.get(name)
            unchanged = known is not None and known[0] == members
            self._written[name] = known if known and unchanged else (members, self._family_text(members))
        return b"".join([text for _, text in self._written.values()])

    def _family_text(self, members: Sequence[Sample]) -> bytes:
        values: dict[str, float] = {}
        for family, labels, value in members:  # of one name, but not always one object
            # Cut or with surrogates replaced, two label sets can become one series.
            values.setdefault(self._prefix(family, labels), value)
        family = members[0].family
        lines = [f"{prefix}{format_value(value)}\n" for prefix, value in values.items()]
        return "".join([_header(family, family.name, _HELP_ESCAPES), *lines]).encode("utf-8", "replace")

    def openmetrics(self, series: Iterable[Series]) -> bytes:
        """Write OpenMetrics 1.0: points of one series together, in the order given; timestamps in seconds."""
        self._bound_cache()
        families: dict[str, tuple[Family, list[tuple[str, Series]]]] = {}
        for one in series:
            members = families.setdefault(one.family.name, (one.family, []))[1]
            members.append((self._prefix(one.family, one.labels), one))
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

    def _prefix(self, family: Family, labels: tuple[str, ...]) -> str:
        prefixes = self._prefixes[family]
        prefix = prefixes.get(labels)
        if prefix is None:
            prefix = prefixes[labels] = _series_text(family, labels)
        return prefix


def _by_name(samples: Iterable[Sample]) -> dict[str, list[Sample]]:
    """Group by name: if two collectors define one family each, two headers of one name would spoil the whole scrape."""
    by_family: defaultdict[Family, list[Sample]] = defaultdict(list)
    for sample in samples:
        by_family[sample[0]].append(sample)
    by_name: defaultdict[str, list[Sample]] = defaultdict(list)
    for family, members in by_family.items():
        by_name[family.name] += members
    return by_name


def _header(family: Family, name: str, escapes: dict[int, str]) -> str:
    return f"# HELP {name} {family.help.translate(escapes)}\n# TYPE {name} {family.type}\n"


def _series_text(family: Family, labels: tuple[str, ...]) -> str:
    """Return a series' line up to its value."""
    if not family.labels:
        return f"{family.name} "
    pairs = ",".join(f'{name}="{escape_label(value)}"' for name, value in zip(family.labels, labels, strict=True))
    return f"{family.name}{{{pairs}}} "
