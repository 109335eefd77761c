"""The text that Prometheus reads: format 0.0.4 for ``/metrics``, OpenMetrics 1.0 where points carry timestamps.

A writer of our own, because escaping and joining labels is most of the work and labels hardly ever change: each
series' text up to its value is kept between scrapes, and so is each line whose value is that of the previous scrape.
``benchmarks/bench_exposition.py`` compares it with prometheus_client's writer.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import compress, count
from operator import itemgetter, ne
from typing import NamedTuple

from pyrometer_exporters.framework.metrics import Columns, Family, Sample, Series, columns_of

TEXT_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"

# A job name or a model name can be anything; a longer value is cut, as it would cost every scrape.
MAX_LABEL_CHARACTERS = 256
# Label sets that come and go (runs, jobs) must not grow the cache for ever.
MAX_CACHED_LABEL_SETS = 50_000

_NOWHERE = -1  # the last text of a page
# About so many characters of a page are encoded and compressed together: in smaller pieces the page compresses worse,
# of larger ones more change (benchmarks/bench_exposition.py).
PIECE_CHARACTERS = 8192

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


class _Page(NamedTuple):
    """The text of a scrape, in pieces of whole families."""

    texts: list[str]
    """Headers and lines, and last one that is not part of the page."""
    places: list[int]
    """Where the line of each sample lies in :attr:`texts`; :data:`_NOWHERE` for a repeated series."""
    prefixes: list[str]
    """Name and labels of each sample as they are written: ``pyrometer_gpu_up{gpu="0"} ``."""
    piece_of: list[int]
    """The piece of each text."""
    ends: list[int]
    """Where each piece ends in :attr:`texts`."""
    pieces: list[bytes]
    """The pieces as they are sent."""


class Renderer:
    """Writes samples as text; keeps the text of labels, and the page of the previous scrape, between scrapes.

    Nearly every scrape has the series of the one before, in the same order, and most of their values are the same::

        samples   (SM_CLOCK, gpu 0, 1980)  (SM_CLOCK, gpu 1, 1755)  (UP, gpu 0, 1)
        columns   families, labels: as before, so the page is used again; values: the second changed
        page      header, SM_CLOCK{gpu="0"} 1980, SM_CLOCK{gpu="1"} 1755, header, UP{gpu="0"} 1
                                                  only this line is written again
    """

    def __init__(self) -> None:
        self._prefixes: defaultdict[Family, dict[tuple[str, ...], str]] = defaultdict(dict)
        self._page = _Page([], [], [], [], [], [])
        self._families: tuple[Family, ...] = ()
        self._labels: tuple[tuple[str, ...], ...] = ()
        self._values: tuple[object, ...] = ()

    def text(self, samples: Iterable[Sample]) -> bytes:
        """Write format 0.0.4: families together, in order of first sight; a repeated series keeps its first sample."""
        return b"".join(self.pieces(columns_of(samples)))

    def pieces(self, columns: Columns) -> tuple[bytes, ...]:
        """Write samples by column as :meth:`text` does; a piece of the page that is as before is the same object."""
        families, labels, values = columns
        if families != self._families or labels != self._labels:
            self._bound_cache()
            self._page = self._laid_out(families, labels)
            self._families, self._labels, self._values = families, labels, (None,) * len(values)
        texts, places, prefixes, piece_of, ends, pieces = self._page
        changed: set[int] = set()
        for index in compress(count(), map(ne, values, self._values)):
            place = places[index]
            texts[place] = f"{prefixes[index]}{format_value(values[index])}\n"
            changed.add(piece_of[place])
        self._values = values
        for piece in changed:
            begin = ends[piece - 1] if piece else 0
            pieces[piece] = "".join(texts[begin : ends[piece]]).encode("utf-8", "replace")
        return tuple(pieces)

    def _laid_out(self, families: Sequence[Family], labels: Sequence[tuple[str, ...]]) -> _Page:
        """Return the page for these series, with headers but no lines yet."""
        prefixes = [*map(self._prefix, families, labels)]
        texts: list[str] = []
        places = [_NOWHERE] * len(prefixes)
        ends: list[int] = []
        length = 0
        for name, members in _by_name(families).items():
            if length > PIECE_CHARACTERS:
                ends.append(len(texts))
                length = 0
            texts.append(_header(families[members[0]], name, _HELP_ESCAPES))
            # Cut or with surrogates replaced, two label sets can become one series: the first sample has the line.
            firsts = {prefixes[index]: index for index in reversed(members)}
            for index in sorted(firsts.values()):
                places[index] = len(texts)
                texts.append("")
                length += len(prefixes[index])
        ends.append(len(texts))
        piece_of = [bisect_right(ends, place) for place in range(len(texts))]
        return _Page([*texts, ""], places, prefixes, [*piece_of, len(ends) - 1], ends, [b""] * len(ends))

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
    found: defaultdict[str, list[int]] = defaultdict(list)
    for index, family in enumerate(families):
        found[family.name].append(index)
    return found


def _header(family: Family, name: str, escapes: dict[int, str], kind: str = "") -> str:
    return f"# HELP {name} {family.full_help.translate(escapes)}\n# TYPE {name} {kind or family.type}\n"


def _series_text(family: Family, labels: tuple[str, ...]) -> str:
    """Return a series' line up to its value."""
    if not family.labels:
        return f"{family.name} "
    pairs = ",".join(f'{name}="{escape_label(value)}"' for name, value in zip(family.labels, labels, strict=True))
    return f"{family.name}{{{pairs}}} "
