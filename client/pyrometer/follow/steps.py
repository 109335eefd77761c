"""From lines to steps: which format it is, one line per step, how many steps it stands for, how long one took."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pyrometer.follow.cleaning import clean
from pyrometer.follow.logged import Format, Logged, Notice, Parser
from pyrometer.follow.worlds import World

# No line stands for more than a week: its step's number or its time is garbled, or belongs to another training.
LONGEST_LINE_SECONDS = 7 * 86_400.0
# No batch has more; it is garbled.
MOST_TOKENS = 1e15
# Steps that another rank says while the one that is followed says none, until that one is taken as gone.
SILENT_LINES = 10
_MOST_RANKS = 4096
# A step's number this many times further on than usual (before two lines have shown what is usual: this many steps) is
# believed when the next line goes on from there: two lines that were torn and joined make a number of both.
_FAR, _FAR_AT_FIRST = 10, 1000


class Timed(NamedTuple):
    """One line's worth of training.

    Attributes:
        logged: what the line says.
        steps: how many steps it stands for, 1 where the log prints each.
        seconds: of one step; None where nothing tells.
        restarted: the count of steps went back (or began): another attempt of the run in the same log.
        tags: what lay between the last line and this one.
        gpus: that share the work, 0 where neither the log nor the caller told.
    """

    logged: Logged
    steps: int
    seconds: float | None
    restarted: bool
    tags: frozenset[str]
    gpus: int = 0


class Sizes(NamedTuple):
    """What the log doesn't say and the caller knows; 0 is unknown."""

    gpus: int = 0
    samples: float = 0
    sequence: float = 0
    tokens: float = 0

    def tokens_of(self, logged: Logged) -> float:
        """Tokens of one step, 0 where unknown; the line's own numbers come first, for batches that grow."""
        samples, sequence = logged.samples or 0.0, logged.sequence or self.sequence
        tokens = logged.tokens or (samples * sequence) or self.tokens or (self.samples * sequence)
        return tokens if 0 < tokens <= MOST_TOKENS else 0.0

    def seconds_of(self, logged: Logged) -> float | None:
        """The time of one step, from what the line says and these."""
        if logged.seconds:
            return logged.seconds
        if logged.samples_per_second and (samples := logged.samples or self.samples):
            return samples / logged.samples_per_second
        tokens = self.tokens_of(logged)
        if logged.gpu_tokens_per_second and self.gpus and tokens:
            return tokens / (logged.gpu_tokens_per_second * self.gpus)
        return None


class _Other:
    """A rank that isn't followed."""

    def __init__(self, parser: Parser) -> None:
        self.parser = parser
        self.said = 0


class Steps:
    """Reads the lines of one log.

    Args:
        formats: by name; the first that understands a line is the log's from then on.
        sizes: see :class:`Sizes`.
    """

    def __init__(self, formats: Mapping[str, Format], sizes: Sizes) -> None:
        self._sizes = sizes
        self._formats = formats
        self._others: dict[str, _Other] = {}
        self._parsers: dict[str, Parser] = {name: found.parser() for name, found in formats.items()}
        self._rank: str | None = None
        self._last: Logged | None = None
        self._last_seen = 0.0
        self._stride = 0
        self._doubtful: tuple[Logged, float] | None = None
        self._tags: set[str] = set()
        self.world = World()
        """How many GPUs the log says there are."""
        self.format: str | None = None
        """The log's format, once a line told."""

    def read(self, lines: Sequence[str], now: float) -> Iterator[Timed]:
        """The steps in these lines, read at monotonic second ``now``."""
        for line in lines:
            text, rank = clean(line)
            self.world.feed(text)
            said = self._said(text, rank)
            if isinstance(said, Notice):
                self._tags.add(said.tag)
            elif said is not None:
                self.world.step(said)
                for believed, when in self._believed(said, now):
                    step = self._timed(believed, when)
                    if step is not None:
                        yield step

    def _said(self, text: str, rank: str) -> Logged | Notice | None:
        if self.format is None:
            return self._recognised(text, rank)
        # Every rank may print the step: one of them is enough, and only its own lines are one log.
        if rank != self._rank:
            return self._of_another(self.format, text, rank)
        said = self._parsers[self.format].feed(text)
        if isinstance(said, Logged):
            self._others.clear()
        return said

    def _of_another(self, name: str, text: str, rank: str) -> Logged | None:
        """A job that was begun again on fewer or other nodes may print by another rank from then on."""
        if rank not in self._others and len(self._others) >= _MOST_RANKS:
            return None
        other = self._others.setdefault(rank, _Other(self._formats[name].parser()))
        said = other.parser.feed(text)
        if not isinstance(said, Logged):
            return None
        other.said += 1
        if other.said < SILENT_LINES:
            return None
        self._rank, self._parsers[name] = rank, other.parser
        self._others.clear()
        return said

    def _recognised(self, text: str, rank: str) -> Logged | Notice | None:
        """Until the format is known, every one of them reads along; only a step's line decides."""
        for name, parser in self._parsers.items():
            said = parser.feed(text)
            if isinstance(said, Logged):
                self.format, self._rank = name, rank
                return said
        return None

    def _believed(self, logged: Logged, now: float) -> Iterator[tuple[Logged, float]]:
        """This line and one that waited for it; none while its number is too far on to be believed alone."""
        doubtful, self._doubtful = self._doubtful, None
        if doubtful is not None and logged.step > doubtful[0].step:
            yield doubtful
        elif self._last is not None and logged.step - self._last.step > (_FAR * self._stride or _FAR_AT_FIRST):
            self._doubtful = (logged, now)
            return
        yield logged, now

    def _timed(self, logged: Logged, now: float) -> Timed | None:
        last, seen = self._last, self._last_seen
        if last is not None and logged.step == last.step:
            return None  # printed twice
        back = last is not None and logged.step < last.step
        steps = 1 if last is None or back else logged.step - last.step
        self._stride = steps if last is not None and not back else self._stride
        gpus = self._sizes.gpus or self.world.gpus
        seconds = self._sizes._replace(gpus=gpus).seconds_of(logged) or _between(
            last if not back else None, logged, steps, now - seen
        )
        if seconds is not None and not 0 < seconds * steps <= LONGEST_LINE_SECONDS:
            seconds = None
        tags, self._tags = frozenset(self._tags), set()
        self._last, self._last_seen = logged, now
        return Timed(logged, steps, seconds, restarted=last is None or back, tags=tags, gpus=gpus)


def _between(last: Logged | None, logged: Logged, steps: int, waited: float) -> float | None:
    """The time of one step by the log's own clock; without one, by when the lines came."""
    if last is None:
        return None
    if logged.elapsed is not None and last.elapsed is not None:
        waited = logged.elapsed - last.elapsed
    return waited / steps if waited > 0 else None
