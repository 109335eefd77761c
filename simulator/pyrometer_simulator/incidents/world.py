"""A world: a cluster with a run, what is planted in it, and the truth about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from pyrometer_simulator.incidents.cluster import GPUS, Gpu, draw
from pyrometer_simulator.incidents.training import BACKWARD, Attempt, Script

Floats = npt.NDArray[np.float64]
BASE = 1_700_000_010.0  # long ago on any clock: Prometheus refuses the future
REASONS = ("gpu_idle", "clocks_setting", "power_cap", "hw_slowdown", "sw_thermal", "hw_thermal", "hw_power_brake")
RESOURCES = ("cpu", "memory", "io")
PREFIX = 840.0  # the run's good time before the fault, at least: the rules want 200 batches, 30 of long steps
WATCH = 900.0
DROPS = {"mild": (0.19, 0.25), "medium": (0.28, 0.4), "strong": (0.45, 0.62)}


@dataclass(frozen=True)
class Truth:
    """The fault, as a reader of the channel would accept it.

    Attributes:
        exact: the parts that are right, in the channel's notation.
        coarse: parts that contain the culprit or lie in it: not wrong, not enough.
        words: a regular expression that the cause's words must match; empty where the part says enough.
        benign: nothing is broken: no alert is right as well, and no part may be blamed.
        silent: `unknown` is right if the message says what is missing, which this expression matches.
    """

    exact: tuple[str, ...]
    coarse: tuple[str, ...] = ()
    words: str = ""
    benign: bool = False
    silent: str = ""


@dataclass
class Ports:
    """The state of all ports, by (scrape, node, port)."""

    up: Floats
    rate: Floats
    downs: Floats
    last_down: Floats
    symbols: Floats
    wait_rate: Floats


class World:
    """A cluster under construction: kinds and red herrings call its methods, `metrics` writes what results."""

    def __init__(
        self,
        seed: int,
        kind: str,
        severity: str,
        *,
        nodes: int | None = None,
        interval: float = 5.0,
        begin: float = BASE,
    ) -> None:
        self.seed, self.kind, self.severity = seed, kind, severity
        self.random = np.random.default_rng([seed, *kind.encode()])
        self.layout = draw(self.random, f"w{seed}-{kind}", interval, nodes)
        self.begin = begin
        self.at = begin + max(PREFIX, 75 * self.layout.step) + float(self.random.uniform(60, 180))
        self.end = self.at + WATCH + 180.0
        self.script = Script()
        self._make_hardware()

    def _make_hardware(self) -> None:
        layout, random = self.layout, self.random
        count = len(layout.names)
        grid = np.arange(self.begin, self.end, layout.interval)
        self.grid = grid
        # The batches' target comes last in each round, just before the rules are evaluated: see `Watch`.
        self.times: Floats = grid[:, None] + random.uniform(-0.97, -0.1, count) * layout.interval
        shape = (len(grid), count, GPUS)
        busy = 1980.0 - 15.0 * np.abs(random.standard_normal((count, GPUS)))
        self.clock: Floats = np.round(busy + 6.0 * random.standard_normal(shape))
        self.celsius: Floats = np.round(59 + 4 * random.standard_normal((count, GPUS)) + random.standard_normal(shape))
        self.watts: Floats = 640 + 25 * random.standard_normal((count, GPUS)) + 12 * random.standard_normal(shape)
        self.limit: Floats = np.full(shape, 700.0)
        self.util: Floats = np.minimum(100.0, np.round(98 + 1.0 * random.standard_normal(shape)))
        self.tensor: Floats = 0.58 + 0.01 * random.standard_normal(shape)
        self.held = {reason: np.zeros(shape) for reason in REASONS}
        capped = random.uniform(0.1, 0.3, (count, GPUS))
        self.held["power_cap"] += capped * (self.times - self.begin + 4000.0)[:, :, None]
        self.gpu_up: Floats = np.ones(shape)
        self.width: Floats = np.full(shape, 16.0)
        self.nvlinks: Floats = np.full(shape, 18.0)
        self.ecc: Floats = np.zeros(shape)
        self.recovery: Floats = np.zeros(shape)
        self.xids: dict[tuple[int, int, str, str], Floats] = {}
        self.down_reasons: list[tuple[int, int, str, float, float]] = []
        ports = (len(grid), count, layout.ports)
        self.ports = Ports(
            np.ones(ports), np.full(ports, 4e11), np.zeros(ports), np.full(ports, np.nan), np.zeros(ports),
            np.full(ports, 2e5),
        )  # fmt: skip
        self.kernel: dict[tuple[int, str], Floats] = {}
        self.sxids: dict[int, Floats] = {}
        base = {"cpu": 0.01, "memory": 0.0005, "io": 0.004}
        elapsed = self.times - self.begin + 9000.0
        self.pressure = {name: share * elapsed * random.uniform(0.6, 1.4, count) for name, share in base.items()}
        self.answers: npt.NDArray[np.bool_] = random.random((len(grid), count)) > 0.006
        self.moments: list[tuple[float, int]] = []  # when something began on a node
        self.lasting = True  # the fault goes on until the end
        self.attempts: list[Attempt] = []
        self.truth_benign = False
        self.configured: tuple[float, dict[str, str]] | None = None

    # -- choices ---------------------------------------------------------------------------------------------------

    def node(self) -> int:
        """Return a random node of the run that does not report the batches."""
        return int(self.random.choice([*self.layout.members][1:]))

    def stranger(self) -> int | None:
        """Return a random node that is not the run's."""
        others = self.layout.strangers
        return int(self.random.choice(others)) if others else None

    def gpu(self) -> Gpu:
        """Return a random GPU of the run."""
        return Gpu(self.node(), int(self.random.integers(GPUS)))

    def all_gpus(self, nodes: Iterable[int]) -> list[Gpu]:
        """Return all GPUs of these nodes."""
        return [Gpu(node, gpu) for node in nodes for gpu in range(GPUS)]

    def port(self) -> int:
        """Return a random port's number."""
        return int(self.random.integers(self.layout.ports))

    def drop(self) -> float:
        """Return by which share the MFU falls, drawn for this severity."""
        return float(self.random.uniform(*DROPS[self.severity]))

    def extra(self, drop: float | None = None) -> float:
        """Return by how many seconds a step grows for such a drop."""
        share = self.drop() if drop is None else drop
        return self.layout.step * (1 / (1 - share) - 1)

    def strength(self, mild: float, strong: float) -> float:
        """Return a number between two, by severity and chance."""
        place = {"mild": 0.0, "medium": 1 / 3, "strong": 2 / 3}[self.severity] + float(self.random.random()) / 3
        return mild + (strong - mild) * place

    # -- the run ---------------------------------------------------------------------------------------------------

    def slow(self, gpus: Sequence[Gpu], seconds: float, begin: float | None = None, end: float = np.inf) -> None:
        """Let the ranks on these GPUs compute this much longer in each step between two times."""
        mine = self.mask(gpus)
        start = self.at if begin is None else begin
        self.script.compute.append(lambda now, usual: mine * seconds if start <= now < end else np.zeros(len(usual)))

    def slow_while(self, gpus: Sequence[Gpu], seconds: float, during: Callable[[float], bool | float]) -> None:
        """Let these ranks compute longer in steps that start at such times, in proportion if it is a number."""
        mine = self.mask(gpus)
        self.script.compute.append(lambda now, _usual: mine * (seconds * float(during(now))))

    def part(self, part: int, seconds: Callable[[float], float], gpus: Sequence[Gpu] | None = None) -> None:
        """Book seconds of each step as a part, on these GPUs' ranks or on all."""
        mine = np.ones(self.layout.ranks) if gpus is None else self.mask(gpus)
        self.script.parts.append((part, lambda now, _usual: mine * seconds(now)))

    def stall_at(self, times: Sequence[float], seconds: float) -> None:
        """Let everybody wait once after each of these times: the step under way is that much longer."""
        pending = sorted(times)

        def extra(now: float) -> float:
            late = 0.0
            while pending and pending[0] <= now + self.layout.step:
                pending.pop(0)
                late += seconds
            return late

        self.script.communication.append(extra)

    def wait_longer(self, seconds: float, begin: float, end: float = np.inf) -> None:
        """Let everybody wait this much longer in each step between two times."""
        self.script.communication.append(lambda now: seconds if begin <= now < end else 0.0)

    def mask(self, gpus: Sequence[Gpu]) -> Floats:
        """Return 1 for the ranks on these GPUs, 0 for the others."""
        mask = np.zeros(self.layout.ranks)
        mask[[self.layout.rank_of(gpu) for gpu in gpus if gpu.node in self.layout.members]] = 1.0
        return mask

    # -- hardware --------------------------------------------------------------------------------------------------

    def between(self, node: int, begin: float, end: float = np.inf) -> npt.NDArray[np.bool_]:
        """Return which scrapes of a node lie between two times."""
        return (self.times[:, node] >= begin) & (self.times[:, node] < end)

    def throttle(
        self,
        gpus: Sequence[Gpu],
        reasons: Sequence[str],
        spells: Sequence[tuple[float, float]],
        *,
        share: float = 1.0,
        clock: float | None = None,
        celsius: float | None = None,
        watts: float | None = None,
    ) -> None:
        """Hold these GPUs' clocks for these reasons in these spells, for a share of the time."""
        for each in gpus:
            at = self.times[:, each.node]
            self.moments += [(begin, each.node) for begin, _end in spells]
            for begin, end in spells:
                now = (at >= begin) & (at < end)
                for reason in reasons:
                    self.held[reason][:, each.node, each.gpu] += share * np.clip(at - begin, 0, end - begin)
                noise = np.round(8 * self.random.standard_normal(int(now.sum())))
                if clock is not None:
                    self.clock[now, each.node, each.gpu] = clock + noise
                if celsius is not None:
                    self.celsius[now, each.node, each.gpu] = celsius + np.round(noise / 8)
                if watts is not None:
                    self.watts[now, each.node, each.gpu] = watts + noise

    def flap(self, node: int, port: int, times: Sequence[float], seconds: float) -> None:
        """Take a link down at these times, for these seconds."""
        at, ports = self.times[:, node], self.ports
        for down in times:
            ports.downs[:, node, port] += at >= down
            ports.up[(at >= down) & (at < down + seconds), node, port] = 0.0
            ports.last_down[at >= down, node, port] = down
            ports.symbols[:, node, port] += 3.0 * (at >= down)
        self.moments += [(down, node) for down in times]

    def xid(self, gpu: Gpu, number: str, kind: str, at: float, count: int = 1) -> None:
        """Report an Xid of a class (`kind`) once or several times from a time on."""
        series = self.xids.setdefault((gpu.node, gpu.gpu, number, kind), np.zeros(len(self.grid)))
        series += count * (self.times[:, gpu.node] >= at)

    def lose_gpu(self, gpu: Gpu, at: float, reason: str = "gpu_is_lost") -> None:
        """Take a GPU off the bus."""
        self.gpu_up[self.between(gpu.node, at), gpu.node, gpu.gpu] = 0.0
        self.down_reasons.append((gpu.node, gpu.gpu, reason, at, np.inf))

    def event(self, node: int, kind: str, at: float, count: int = 1) -> None:
        """Put an event of a kind into the kernel's log."""
        series = self.kernel.setdefault((node, kind), np.zeros(len(self.grid)))
        series += count * (self.times[:, node] >= at)

    def press(self, node: int, resource: str, share: float, begin: float, end: float = np.inf) -> None:
        """Let a node's tasks wait for a resource for a share of the time."""
        self.moments.append((begin, node))
        at = self.times[:, node]
        self.pressure[resource][:, node] += share * np.clip(at - begin, 0, max(end - begin, 0))

    def silence(self, node: int, begin: float, end: float = np.inf) -> None:
        """Let a node's exporter stop answering."""
        self.answers[self.between(node, begin, end), node] = False

    def configure(self, at: float, labels: dict[str, str]) -> None:
        """Let the run report another configuration from a time on."""
        self.configured = (at, labels)

    def stop(self, at: float, held: dict[int, int], gone: tuple[int, ...] = ()) -> None:
        """Let the run stop: these ranks in these parts, the rest waiting; `gone` ranks have no process."""
        self.script.stop = (at, held, gone)
        for node in self.layout.members:
            now = self.between(node, at)
            self.watts[now, node] = 180.0
            self.tensor[now, node] = 0.0


@dataclass
class Catalogue:
    """The kinds of incident by name, and the reports that they are from."""

    kinds: dict[str, Callable[[World], Truth]] = field(default_factory=dict)
    source: dict[str, str] = field(default_factory=dict)

    def kind(self, source: str) -> Callable[[Callable[[World], Truth]], Callable[[World], Truth]]:
        """Return a decorator that enters a kind under its function's name."""

        def enter(plant: Callable[[World], Truth]) -> Callable[[World], Truth]:
            name = plant.__name__
            self.kinds[name], self.source[name] = plant, source
            return plant

        return enter


# The modules kinds_* enter theirs.
KINDS = Catalogue()


def truth_of_gpu(world: World, gpu: Gpu, words: str = "") -> Truth:
    """Return the truth about one sick GPU; its node and its rank are coarse."""
    layout = world.layout
    node = layout.names[gpu.node]
    return Truth((layout.gpu_name(gpu),), (node, f"{node} rank {layout.rank_of(gpu)}"), words)


def fatal_xid(world: World, code: str) -> Gpu:
    """Report a critical Xid on a GPU, of which its process dies half a second later; return the GPU."""
    gpu = world.gpu()
    rank = world.layout.rank_of(gpu)
    world.xid(gpu, code, "critical", world.at)
    world.stop(world.at + 0.5, {rank: BACKWARD}, (rank,))
    return gpu
