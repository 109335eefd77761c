"""Say what holds up a hung job, in lines."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from pyrometer.hang.blame import Hang, Meeting, examine
from pyrometer.hang.records import Dump
from pyrometer.hang.waits import Wait

MOST_WAITS = 16
MOST_NAMED = 16
MOST_WAITED_SECONDS = 24 * 3600.0


def explain(dumps: Sequence[Dump], hang: Hang | None = None) -> list[str]:
    """Return lines that say which collective hangs, who came to it, who did not, and where in the code."""
    hang = hang or examine(dumps)
    by_rank = {dump.rank: dump for dump in dumps}
    names = _Names(dumps, hang.waits)
    shown = [wait for wait in hang.waits if not wait.complete or wait.idle]
    shown.sort(key=lambda wait: not wait.awaited.intersection(hang.named))
    lines = [line for wait in shown[:MOST_WAITS] for line in _about(wait, names)]
    if len(shown) > MOST_WAITS:
        lines.append(f"and so in {len(shown) - MOST_WAITS:,} more collectives")
    if not hang.named or any(meeting.peer in hang.named for meeting in hang.meetings):
        lines.extend(_about_meetings(hang.meetings, hang.named, names))
    if hang.named:
        lines.extend(_named(hang, by_rank, names))
    else:
        lines.extend(_nobody(hang, by_rank, names))
    return [_printable(line) for line in lines]


class _Names:
    """How groups are called: with their ranks where several have one name."""

    def __init__(self, dumps: Sequence[Dump], waits: Iterable[Wait]) -> None:
        self._texts: dict[str, str] = {}
        for dump in dumps:
            for group, text in dump.groups.items():
                if text not in ("", "undefined"):
                    self._texts.setdefault(group, text)
        self._counts = Counter(group for group, _ in {(wait.group, wait.members) for wait in waits})

    def of(self, group: str, members: Collection[int] = ()) -> str:
        text = self._texts.get(group, "")
        alone = self._counts[group] <= 1 or not members
        return f"group {group}" + (f" ({text})" if text else "") + ("" if alone else f" of {_some(sorted(members))}")

    def wait(self, wait: Wait) -> str:
        name = wait.collective.name or "a collective that fell out of the buffer,"
        return f"{name} {wait.collective.sequence:,} of {self.of(wait.group, wait.members)}{_at(wait.collective.place)}"


def _about(wait: Wait, names: _Names) -> Iterator[str]:
    since = f", since {_clock(wait.collective.began)}" if wait.collective.began else ""
    # A copied file is as old as its copy.
    waited = f" ({wait.waited:,.0f} s when last seen)" if since and 1 <= wait.waited < MOST_WAITED_SECONDS else ""
    waited = f", for {wait.collective.ran:,.0f} s" if wait.collective.ran else waited
    yield f"{len(wait.waiting)} of the ranks wait in {names.wait(wait)}: {_some(wait.waiting)}{since}{waited}"
    if wait.missing:
        yield f"did not reach it: {_some(wait.missing)}"
    if wait.absent:
        yield f"left no dump: {_some(wait.absent)}"
    if wait.lost:
        yield f"can't be told, as it fell out of the buffer or batches of sends have its numbers: {_some(wait.lost)}"
    if wait.unsure:
        yield _may_have_come(wait.unsure)
    if wait.idle:
        yield f"launched it, but the GPU has not begun it: {_some(wait.idle)}"
    yield from (f"  rank {rank} is in {other} instead" for rank, other in wait.others[:MOST_NAMED])
    if wait.undecided:
        yield "they differ, and no side is the odd one:"
        yield from (f"  rank {rank} is in {other}" for rank, other in wait.undecided[:MOST_NAMED])


def _about_meetings(meetings: Sequence[Meeting], named: Collection[int], names: _Names) -> Iterator[str]:
    alone = [meeting for meeting in meetings if meeting.came is False and (not named or meeting.peer in named)]
    for meeting in alone[:MOST_WAITS]:
        transfer = meeting.transfer
        made = transfer.collective
        since = f", since {_clock(made.began)}" if made.began else ""
        verb = "sends to" if transfer.sends else "receives from"
        yield f"rank {meeting.rank} {verb} rank {meeting.peer} in {names.of(transfer.group)}{_at(made.place)}{since}"
    if len(alone) > MOST_WAITS:
        yield f"and {len(alone) - MOST_WAITS:,} more sends and receives"


def _may_have_come(unsure: Sequence[tuple[int, float]]) -> str:
    seconds = min(seconds for _, seconds in unsure)
    when = f"{abs(seconds):,.1f} s {'before' if seconds < 0 else 'after'}"
    ranks = _some([rank for rank, _ in unsure])
    return f"may come, or have come since: {ranks}, seen {when} the last of the others came"


def _named(hang: Hang, by_rank: Mapping[int, Dump], names: _Names) -> Iterator[str]:
    if hang.circle:
        yield f"{_some(hang.circle)} wait for each other; this one was probably the first to stop:"
    elif not hang.sure and by_rank.keys().isdisjoint(hang.named):
        yield "one of these, or their dumps are only missing here:"
    elif not hang.sure:
        yield "probably, as it is in a send or receive itself, whose other end can't be told:"
    for rank in hang.named[:MOST_NAMED]:
        yield _last_seen(rank, by_rank.get(rank))
    if len(hang.named) > MOST_NAMED:
        yield f"and for {len(hang.named) - MOST_NAMED:,} more ranks"
    for wait in hang.waits:
        stuck = [rank for rank in wait.waiting if rank not in hang.named and wait.complete and wait.through]
        if stuck and wait.members.intersection(hang.named):
            continue
        if stuck and len(stuck) <= len(wait.through):
            yield f"{_some(stuck)} are not through with {names.wait(wait)}, which {_some(wait.through)} have finished"


def _nobody(hang: Hang, by_rank: Mapping[int, Dump], names: _Names) -> Iterator[str]:
    if any(wait.unsure for wait in hang.waits):
        yield "Nobody is named: a run that goes on looks the same. Ask for dumps of all ranks again."
        return
    if hang.circle:
        yield f"No single rank differs: {_some(hang.circle)} wait for each other, in operations of different order."
        return
    first = [wait for wait in hang.waits if wait.complete and _is_first(wait, by_rank)]
    pairs = sorted({(min(one.rank, one.peer), max(one.rank, one.peer))
                    for one in hang.meetings if one.came and one.peer is not None})  # fmt: skip
    for wait in first[:MOST_WAITS]:
        yield from _all_in_it(wait, names)
    if not first:
        for low, high in pairs[:MOST_WAITS]:
            yield f"ranks {low} and {high} are both in it: the link between them, or the library that moves the data"
    if first or pairs:
        yield "No single rank differs: every rank came."
    elif hang.waits or hang.meetings:
        yield "No single rank differs: every rank that others wait for is waiting too, or left no dump."
    else:
        yield "No single rank differs: nobody waits."


def _is_first(wait: Wait, by_rank: Mapping[int, Dump]) -> bool:
    """Return whether a rank is held up here first: other operations of it are queued behind this one."""
    for rank in wait.waiting:
        dump = by_rank[rank]
        orders = [one.order for one in dump.open.values()]
        orders += [one.collective.order for one in dump.transfers if not one.collective.finished]
        if dump.open[wait.group].order <= min(orders):
            return True
    return False


def _all_in_it(wait: Wait, names: _Names) -> Iterator[str]:
    since = f", since {_clock(wait.collective.began)}" if wait.collective.began else ""
    if not wait.through:
        yield (
            f"all {len(wait.members):,} ranks of it are in {names.wait(wait)}{since}: {_some(sorted(wait.members))}. "
            "A link between them, or NCCL itself."
        )
        return
    through, waiting = _some(wait.through), _some(wait.waiting)
    yield (
        f"all came to {names.wait(wait)}{since}: {through} are through with it, {waiting} are not. "
        f"The link between {through} and {waiting}, or NCCL itself."
    )


def _last_seen(rank: int, dump: Dump | None) -> str:
    if dump is None:
        return f"=> the others wait for rank {rank}: it wrote no dump"
    made = [
        f"{one.name or 'number'} {one.sequence:,} of group {group}{_at(one.place)}"
        for group, one in dump.latest.items()
    ]
    if not made and dump.transfers:
        last = max(dump.transfers, key=lambda transfer: transfer.collective.order)
        made = [
            f"none; its last send or receive: {last.collective.name} of group {last.group}{_at(last.collective.place)}"
        ]
    return f"=> the others wait for rank {rank}; its last collectives: " + ("; ".join(made) or "none")


def _clock(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))


def _at(place: str) -> str:
    return f", {place}" if place else ""


def _some(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:16]))
    return f"ranks {shown}" + (f" and {len(ranks) - 16} more" if len(ranks) > 16 else "")


def _printable(text: str) -> str:
    """Return text that a terminal shows as it is: what a dump holds is the job's."""
    return "".join(char if char.isprintable() else "?" for char in text[:2000])
