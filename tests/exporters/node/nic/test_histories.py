"""Thousands of random histories of a port against a simple model of what really happened to it.

The history is made of what happens (the link is lost and comes back, an administrator, a reboot, a driver reload,
cleared counters, a counter at its maximum, a source that can't be read, a look in the middle of an event, an exporter
that ends or is killed) and of looks. The model knows every loss and nothing of how it is found out; never may the
collector miss one that a source could show, and never may it count one twice.

Seeds are fixed; a failure prints the seed and the history.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from pyrometer_exporters.node.nic.link_down import LINK_DOWNED_MAXIMUM, PortMemory, PortObservation
from pyrometer_exporters.node.nic.state import decode, encode

HISTORIES = 4000
STEPS = 40
NARROW, WIDE = "link_downed", "carrier_down_count"


@dataclass
class World:
    """A port as it really is, and what it should have been counted."""

    random: random.Random
    up: bool = True
    disabled: bool = False
    booting: bool = False
    boot: int = 1
    inode: int = 1
    narrow: int = 0
    wide: int = 0
    # True if only the wide counter knows all, because the narrow one was cleared: until a look reads both and finds the
    # link up, as before that the narrow one may merely be late.
    cleared: bool = False
    read_all: bool = True
    # True if the link was lost in the middle of the last look.
    torn: bool = False
    uncounted: bool = False
    seen_disabled: bool = False
    # True if every source was read since the counters began: nothing can be said of one that never was.
    seen_all: bool = False
    # The model: losses since the last look, whether losses count, what the exporter should say.
    pending: int = 0
    counts: bool = False
    expected: int = 0
    log: list[str] = field(default_factory=list)

    def lose(self, *, by_admin: bool = False) -> None:
        if self.up:
            self.up = False
            self.narrow = min(self.narrow + 1, LINK_DOWNED_MAXIMUM)
            self.wide += 1
            self.pending += not by_admin

    def recover(self) -> None:
        self.up = not self.disabled

    def flap(self) -> None:
        for _ in range(self.random.randint(1, 3)):
            self.lose()
            self.recover()

    def disable(self) -> None:
        if self.up:  # an administrator switches off a link that works, or it can't be told who took it down
            self.disabled = True
            self.lose(by_admin=True)

    def enable(self) -> None:
        """A port switched off and on between two looks is a flap to everybody: only one that was seen off is none."""
        if self.seen_disabled:
            self.disabled = False
        self.recover()

    def begin_again(self) -> None:
        """Reboot or reload: what was not looked at is lost, and nothing counts until the link is seen up."""
        self.pending, self.counts, self.seen_all = 0, False, False

    def reboot(self) -> None:
        self.boot += 1
        self.narrow, self.wide = 0, self.random.randint(0, 2)
        self.booting = self.random.random() < 0.5
        self.begin_again()

    def settle(self) -> None:
        self.booting = False

    def reload(self) -> None:
        self.inode += 1
        if self.random.random() < 0.5:
            self.narrow = self.wide = 0
        self.begin_again()

    def clear(self) -> None:
        """perfquery -R; the kernel's own carrier count stays."""
        self.narrow, self.cleared = 0, True


def look_at(world: World) -> PortObservation:
    """A look; the link may be lost in its middle, after a counter was read and before the state is."""
    shown = {NARROW: world.narrow, WIDE: world.wide}
    torn = world.random.random() < 0.1 and world.up and world.seen_all
    world.torn = torn
    if torn:
        read_late = world.random.choice([(NARROW,), (WIDE,), (NARROW, WIDE)])
        world.lose()
        shown = {name: (shown[name] if name in read_late else getattr(world, _FIELD[name])) for name in shown}
        world.log.append(f"torn {read_late}")
    sources: dict[str, int | None] = dict(shown)
    if not torn and world.seen_all and world.random.random() < 0.1:
        unread = world.random.choice([NARROW, WIDE])
        # Some source must show what happened, or nobody could know of it.
        if unread == NARROW or (world.narrow < LINK_DOWNED_MAXIMUM and not world.cleared):
            sources[unread] = None
            world.log.append(f"unread {unread}")
    world.read_all = None not in sources.values()
    world.seen_all = world.seen_all or world.read_all
    return PortObservation(
        f"boot{world.boot}", world.inode, 7, world.up, world.disabled, sources, world.booting, ""
    )  # fmt: skip


_FIELD = {NARROW: "narrow", WIDE: "wide"}


def judge(world: World, events: int) -> None:
    """The losses that the look should have added, by the rules of the design.

    A loss in the middle of a look may show at the next one only: no source has it yet, and the link was down before.
    Where it would not have counted at this look, it may count at the next.
    """
    counts = world.counts and not world.booting
    if counts and world.uncounted and events == world.expected + world.pending + 1:
        world.expected += 1
        world.uncounted = False
    world.uncounted = world.torn and (world.uncounted or not counts)
    world.cleared, world.seen_disabled = world.cleared and not (world.up and world.read_all), world.disabled
    if counts:
        world.expected += world.pending
        world.pending = int(world.torn and events == world.expected - 1)
        world.expected -= world.pending
    else:
        world.pending = 0
    if world.disabled:
        world.counts = False
    elif world.up:
        world.counts = True


def restart(memory: PortMemory) -> PortMemory:
    """The exporter ends and comes back: what it knows is what the file says."""
    return decode(json.loads(encode({"port": memory})))["port"]


ACTIONS: tuple[tuple[Callable[[World], None], int], ...] = (
    (World.flap, 10),
    (World.lose, 5),
    (World.recover, 8),
    (World.disable, 1),
    (World.enable, 3),
    (World.reboot, 1),
    (World.settle, 2),
    (World.reload, 1),
    (World.clear, 1),
)


def play(seed: int) -> tuple[World, PortMemory]:
    """One history; fails at the first look that counts wrongly."""
    chance = random.Random(seed)  # noqa: S311
    # Every other port is near the end of its 8 bits.
    world, memory = World(chance, narrow=chance.choice([0, chance.randint(245, 255)])), PortMemory()
    actions, weights = zip(*ACTIONS, strict=True)
    for step in range(STEPS):
        for action in chance.choices(actions, weights, k=chance.randint(0, 3)):
            action(world)
            world.log.append(action.__name__)
        if chance.random() < 0.1:
            memory = restart(memory)
            world.log.append("restart")
        look = look_at(world)
        world.log.append(f"look {look}")
        memory.advance(look, float(step))
        judge(world, memory.events)
        assert memory.events == world.expected, f"seed {seed}:\n" + "\n".join(world.log[-30:])
    return world, memory


@pytest.mark.parametrize("block", range(8))
def test_no_history_has_a_missed_or_a_double_loss(block: int) -> None:
    size = HISTORIES // 8
    for seed in range(block * size, (block + 1) * size):
        play(seed)


def test_the_histories_hold_every_kind_of_event() -> None:
    worlds = [play(seed)[0] for seed in range(300)]
    said = " ".join(line for world in worlds for line in world.log)
    for word in ("flap", "disable", "reboot", "reload", "clear", "torn", "unread", "restart"):
        assert word in said
    assert sum(world.expected for world in worlds) > 3000
    assert sum(f"'{NARROW}': {LINK_DOWNED_MAXIMUM}" in " ".join(world.log) for world in worlds) > 50


def test_a_memory_that_adds_the_sources_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def adds(self: PortMemory, look: PortObservation) -> int:
        return sum(max(0, raw - self.sources.get(name, raw)) for name, raw in look.sources.items() if raw is not None)

    monkeypatch.setattr(PortMemory, "_lost", adds)
    with pytest.raises(AssertionError, match="seed"):
        [play(seed) for seed in range(20)]
