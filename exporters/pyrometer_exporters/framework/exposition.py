"""The text that Prometheus reads: format 0.0.4 for ``/metrics``, OpenMetrics 1.0 where points carry timestamps.

Our own writer, because measurement shows why: for a node's 2,500 samples prometheus_client 0.26 takes 5.5 times as
long (8 times for OpenMetrics), and it alone would use up the 10 ms that a scrape may take. Here a family's text is
kept between scrapes for as long as its samples are what they were, and each series' line in the other families.
``benchmarks/bench_exposition.py`` repeats the comparison.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter

from pyrometer_exporters.framework.metrics import Batch, Family, Sample, Series, single

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
    r"""A label value for the text format: ``\``, ``"`` and newline escaped, surrogates replaced, cut at 256.

    >>> escape_label('a"b')
    'a\\"b'
    """
    cut = value[:MAX_LABEL_CHARACTERS].translate(_LABEL_ESCAPES)
    # One byte that isn't UTF-8 would lose the whole scrape.
    return cut.encode("utf-8", "replace").decode("utf-8")


def format_value(value: float) -> str:
    """The shortest text that reads back as the same number; integers without a point."""
    # Beyond 2**53 a float's digits are not all meant; repr keeps them honest.
    if -_BEYOND < value < _BEYOND:  # neither infinite nor NaN
        whole = int(value)
        return str(whole) if whole == value else repr(float(value))
    if value != value:  # noqa: PLR0124  NaN, without the cost of math.isnan
        return "NaN"
    if value in (_INFINITY, -_INFINITY):
        return "+Inf" if value > 0 else "-Inf"
    return repr(float(value))


class _Line:
    """A series' line as it was last written."""

    __slots__ = ("prefix", "scrape", "text", "value")

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.scrape = 0
        self.value = float("nan")  # equal to nothing
        self.text = ""


class Renderer:
    """Writes samples as text, keeping each family's text and each series' line for the next scrape."""

    def __init__(self) -> None:
        self._lines: dict[Family, dict[tuple[str, ...], _Line]] = {}
        # By the text: cut or with surrogates replaced, two label sets can become one series, which has one line.
        self._by_prefix: dict[str, _Line] = {}
        # By the family's name: what it was written from, and the text.
        self._texts: dict[str, tuple[list[Sample | Batch], bytes]] = {}
        self._headers: dict[Family, str] = {}
        self._openmetrics_headers: dict[Family, str] = {}
        self._scrape = 0

    def text(self, items: Iterable[Sample | Batch]) -> bytes:
        """Format 0.0.4: families together and in order of first sight; a repeated series keeps its first sample."""
        self._begin()
        before, self._texts = self._texts, {}
        for name, members in _by_family(items).items():
            kept = before.get(name)
            if kept is None or kept[0] != members:  # a batch is equal to itself only
                kept = members, self._family(members)
            self._texts[name] = kept
        return b"".join([text for _, text in self._texts.values()])

    def openmetrics(self, given: Iterable[Series]) -> bytes:
        """OpenMetrics 1.0: points of one series stay together, in the order given; timestamps in seconds."""
        self._begin()
        families: dict[str, tuple[Family, list[tuple[str, Series]]]] = {}
        for one in given:
            _, members = families.setdefault(one.family.name, (one.family, []))
            members.append((self._prefix(one.family, one.labels), one))
        lines: list[str] = []
        for family, members in families.values():
            lines.append(self._openmetrics_header(family))
            members.sort(key=itemgetter(0))  # cut, two label sets can become one series
            for prefix, one in members:
                lines += [f"{prefix} {format_value(value)} {at / 1000:.3f}\n" for value, at in one.points]
        lines.append("# EOF\n")
        return "".join(lines).encode("utf-8", "replace")

    def _openmetrics_header(self, family: Family) -> str:
        header = self._openmetrics_headers.get(family)
        if header is None:
            # OpenMetrics names a counter without the suffix of its samples, and escapes quotes in help texts too.
            header = _header(family, family.name.removesuffix("_total"), _LABEL_ESCAPES)
            self._openmetrics_headers[family] = header
        return header

    def _begin(self) -> None:
        self._scrape += 1
        if sum(map(len, self._lines.values())) > MAX_CACHED_LABEL_SETS:
            self._lines.clear()
            self._headers.clear()
            self._openmetrics_headers.clear()
            self._by_prefix.clear()

    def _family(self, members: list[Sample | Batch]) -> bytes:
        family = members[0].family
        header = self._headers.get(family)
        if header is None:
            header = self._headers[family] = _header(family, family.name, _HELP_ESCAPES)
        lines = [header]
        if len(members) == 1 and isinstance(members[0], Batch):
            self._write(members[0].samples, lines)
        else:
            self._write(single(members), lines)
        return "".join(lines).encode("utf-8", "replace")

    def _write(self, members: Iterable[Sample], lines: list[str]) -> None:
        scrape, known, family = self._scrape, self._lines, None
        for of, labels, value in members:
            if of is not family:  # of one name, but not always one object
                family, series = of, known.setdefault(of, {})
            line = series.get(labels) or self._line(of, labels)
            if line.scrape != scrape:
                line.scrape = scrape
                if line.value != value:
                    line.value, line.text = value, f"{line.prefix} {format_value(value)}\n"
                lines.append(line.text)

    def _prefix(self, family: Family, labels: tuple[str, ...]) -> str:
        line = self._lines.get(family, {}).get(labels) or self._line(family, labels)
        return line.prefix

    def _line(self, family: Family, labels: tuple[str, ...]) -> _Line:
        """Of a series that is new."""
        prefix = _series(family, labels)
        line = self._by_prefix.setdefault(prefix, _Line(prefix))
        self._lines.setdefault(family, {})[labels] = line
        return line


def _by_family(items: Iterable[Sample | Batch]) -> dict[str, list[Sample | Batch]]:
    # By name: were two collectors to define one family each, two headers of one name would spoil the whole scrape.
    families: dict[str, list[Sample | Batch]] = {}
    known: dict[Family, list[Sample | Batch]] = {}
    for item in items:
        family = item.family
        members = known.get(family)
        if members is None:
            members = known[family] = families.setdefault(family.name, [])
        members.append(item)
    return families


def _header(family: Family, name: str, escapes: dict[int, str]) -> str:
    return f"# HELP {name} {family.help.translate(escapes)}\n# TYPE {name} {family.type}\n"


def _series(family: Family, labels: tuple[str, ...]) -> str:
    if not family.labels:
        return family.name
    pairs = ",".join(f'{name}="{escape_label(value)}"' for name, value in zip(family.labels, labels, strict=True))
    return f"{family.name}{{{pairs}}}"
