"""From lines to steps: detect the format, follow one rank, count the steps of each line, and time them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pyrometer.follow.gpu_count import GpuCount
from pyrometer.follow.log_line import Format, LoggedPause, LoggedStep, Parser, clean

# No line covers more than a week: its step's number or its time is garbled, or belongs to another training.
MAX_LINE_SECONDS = 7 * 86_400.0
# Timestamps of batches are in ms: lines that are closer than that would be dated into the future, one after the other.
MIN_LINE_SECONDS = 0.001
# No batch has more tokens; the number is garbled.
MAX_TOKENS = 1e15
# After as many steps of another rank without one of the followed rank, that one counts as gone.
MAX_SILENT_STEPS = 10
_MAX_RANKS = 4096
# A step's number that jumps by this multiple of the usual stride (at first: by this many steps) is accepted only if the
# next line continues from there: two lines that were torn and joined make one number of both.
_MAX_JUMP, _MAX_FIRST_JUMP = 10, 1000


class StepInterval(NamedTuple):
    """The steps that one line stands for.

    Attributes:
        logged: The line's values.
        steps: How many steps it stands for, 1 where the log prints each.
        seconds: Time of one step; None where it can't be known.
        restarted: The count of steps went back (or began): another attempt of the run in the same log.
        tags: Of the pauses between the last line and this one.
        gpus: That share the work, 0 where neither the log nor the caller names a number.
    """

    logged: LoggedStep
    steps: int
    seconds: float | None
    restarted: bool
    tags: frozenset[str]
    gpus: int = 0


class JobSize(NamedTuple):
    """Sizes that the caller knows and the log may lack; 0 is unknown.

    Attributes:
        gpus: Of the whole job.
        samples: Sequences per step, of all GPUs.
        sequence: Tokens per sequence.
        tokens: Tokens per step, of all GPUs.
    """

    gpus: int = 0
    samples: float = 0
    sequence: float = 0
    tokens: float = 0

    def tokens_of(self, logged: LoggedStep) -> float:
        """Return the tokens of one step, 0 where unknown; the line's own numbers come first, for batches that grow."""
        samples, sequence = logged.samples or 0.0, logged.sequence or self.sequence
        tokens = logged.tokens or (samples * sequence) or self.tokens or (self.samples * sequence)
        return tokens if 0 < tokens <= MAX_TOKENS else 0.0

    def seconds_of(self, logged: LoggedStep) -> float | None:
        """Return the time of one step from the line's values and these sizes, None where they don't suffice."""
        if logged.seconds:
            return logged.seconds
        if logged.samples_per_second and (samples := logged.samples or self.samples):
            return samples / logged.samples_per_second
        tokens = self.tokens_of(logged)
        if logged.tokens_per_second and tokens:
            return tokens / logged.tokens_per_second
        if logged.gpu_tokens_per_second and self.gpus and tokens:
            return tokens / (logged.gpu_tokens_per_second * self.gpus)
        return None


class _OtherRank:
    """A rank that prints the same steps and isn't followed."""

    def __init__(self, parser: Parser) -> None:
        self.parser = parser
        self.steps = 0


class StepReader:
    """Reads the lines of one log.

    Args:
        formats: By name; the first that understands a line is the log's from then on.
        size: See :class:`JobSize`.

    Attributes:
        gpu_count: The number of GPUs that the log prints.
        formats: As given.
        format: Name of the log's format, None until a line reveals it.
    """

    def __init__(self, formats: Mapping[str, Format], size: JobSize) -> None:
        self._size = size
        self.formats = formats
        self._other_ranks: dict[str, _OtherRank] = {}
        self._parsers: dict[str, Parser] = {name: format_.parser() for name, format_ in formats.items()}
        self._rank: str | None = None
        self._last: LoggedStep | None = None
        self._last_read = 0.0
        self._stride = 0
        self._begun = False
        self._doubtful: tuple[LoggedStep, float] | None = None
        self._tags: set[str] = set()
        self._candidates: dict[str, LoggedStep] = {}
        self.gpu_count = GpuCount()
        self.format: str | None = None

    def read(self, lines: Sequence[str], now: float) -> Iterator[StepInterval]:
        """Yield the steps in these lines, read at monotonic second ``now``."""
        for line in lines:
            text, rank = clean(line)
            self.gpu_count.feed(text)
            parsed = self._parse(text, rank)
            if isinstance(parsed, LoggedPause):
                self._tags.add(parsed.tag)
            elif parsed is not None:
                self.gpu_count.feed_step(parsed)
                for logged, read_at in self._plausible(parsed, now):
                    interval = self._interval(logged, read_at)
                    if interval is not None:
                        yield interval

    def _parse(self, text: str, rank: str) -> LoggedStep | LoggedPause | None:
        if self.format is None:
            return self._detect_format(text, rank)
        # Every rank may print the step: one of them is enough, and only its own lines form one log.
        if rank != self._rank:
            return self._parse_other_rank(self.format, text, rank)
        parsed = self._parsers[self.format].feed(text)
        if isinstance(parsed, LoggedStep):
            self._other_ranks.clear()
        return parsed

    def _parse_other_rank(self, name: str, text: str, rank: str) -> LoggedStep | None:
        """Switch to another rank if the followed one is gone, as where a job was restarted on other nodes."""
        if rank not in self._other_ranks and len(self._other_ranks) >= _MAX_RANKS:
            return None
        other = self._other_ranks.setdefault(rank, _OtherRank(self.formats[name].parser()))
        parsed = other.parser.feed(text)
        if not isinstance(parsed, LoggedStep):
            return None
        other.steps += 1
        if other.steps < MAX_SILENT_STEPS:
            return None
        self._rank, self._parsers[name] = rank, other.parser
        self._other_ranks.clear()
        return parsed

    def _detect_format(self, text: str, rank: str) -> LoggedStep | LoggedPause | None:
        """Feed the line to every format's parser; the first that finds a step decides."""
        for name, parser in self._parsers.items():
            parsed = parser.feed(text)
            if isinstance(parsed, LoggedStep) and self._is_enough(name, parsed):
                self.format, self._rank = name, rank
                return parsed
        return None

    def _is_enough(self, name: str, parsed: LoggedStep) -> bool:
        """Return whether this step makes the format the log's; one that others print as well needs a second."""
        last, self._candidates[name] = self._candidates.get(name), parsed
        timed = parsed.seconds is not None or parsed.samples_per_second is not None
        if timed or self.formats[name].lines == 1 or len(self.formats) == 1:
            return True
        if last is None or last.step == parsed.step:
            return False
        self._last = last  # from which the second is timed
        return True

    def _plausible(self, logged: LoggedStep, now: float) -> Iterator[tuple[LoggedStep, float]]:
        """Yield this line and one that waited for it; nothing while its number jumps too far to be accepted alone."""
        doubtful, self._doubtful = self._doubtful, None
        if doubtful is not None and logged.step > doubtful[0].step:
            yield doubtful
        elif self._last is not None and logged.step - self._last.step > (_MAX_JUMP * self._stride or _MAX_FIRST_JUMP):
            self._doubtful = (logged, now)
            return
        yield logged, now

    def _interval(self, logged: LoggedStep, now: float) -> StepInterval | None:
        last, last_read = self._last, self._last_read
        if last is not None and logged.step == last.step:
            return None  # printed twice
        back = last is not None and logged.step < last.step
        steps = 1 if last is None or back else logged.step - last.step
        self._stride = steps if last is not None and not back else self._stride
        gpus = self._size.gpus or self.gpu_count.gpus
        seconds = self._size._replace(gpus=gpus).seconds_of(logged) or _seconds_between(
            last if not back else None, logged, steps, now - last_read
        )
        if seconds is not None and not MIN_LINE_SECONDS <= seconds * steps <= MAX_LINE_SECONDS:
            seconds = None
        tags, self._tags = frozenset(self._tags), set()
        begins, self._begun = back or not self._begun, True
        self._last, self._last_read = logged, now
        return StepInterval(logged, steps, seconds, restarted=begins, tags=tags, gpus=gpus)


def _seconds_between(last: LoggedStep | None, logged: LoggedStep, steps: int, waited: float) -> float | None:
    """Return the time of one step by the log's own clock; without one, by when the lines arrived."""
    if last is None:
        return None
    if logged.elapsed is not None and last.elapsed is not None:
        waited = logged.elapsed - last.elapsed
    return waited / steps if waited > 0 else None
