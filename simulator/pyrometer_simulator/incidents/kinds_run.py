"""Kinds of incident in hosts, storage, the job itself; and slowness that is no fault."""

from __future__ import annotations

import numpy as np

from pyrometer_simulator.incidents.training import BACKWARD, CHECKPOINT, DATA, EVAL, FORWARD, GC, Effect, Floats
from pyrometer_simulator.incidents.world import KINDS, Truth, World

NOBODY = ("no single part", "unknown")
_ANYWHERE = ("no single part",)


def _node(world: World, node: int, words: str = "") -> Truth:
    layout = world.layout
    gpus = world.all_gpus([node])
    parts = [layout.gpu_name(each) for each in gpus]
    ranks = [f"{layout.names[node]} rank {layout.rank_of(each)}" for each in gpus]
    return Truth((layout.names[node],), (*parts, *ranks), words)


@KINDS.kind("MegaScale, BLOOM: a neighbour on a node's CPUs")
def cpu_neighbour(world: World) -> Truth:
    """Let another process take a node's CPUs: all its ranks are slow."""
    node = world.node()
    world.press(node, "cpu", world.strength(0.25, 0.7), world.at)
    world.slow(world.all_gpus([node]), world.extra())
    return _node(world, node, r"(?i)cpu|waits? (for|least)|ranks?")


@KINDS.kind("operators' reports: a node swaps")
def memory_pressure(world: World) -> Truth:
    """Let a node run out of memory and reclaim."""
    node = world.node()
    world.press(node, "memory", world.strength(0.25, 0.6), world.at)
    world.press(node, "io", 0.15, world.at)
    world.slow(world.all_gpus([node]), world.extra())
    return _node(world, node, r"(?i)memory|waits? (for|least)|ranks?")


@KINDS.kind("Llama 3: the kernel kills a process for memory")
def oom_kill(world: World) -> Truth:
    """Kill one rank's process for memory: the run stops."""
    gpu = world.gpu()
    rank = world.layout.rank_of(gpu)
    world.event(gpu.node, "oom_kill", world.at)
    world.press(gpu.node, "memory", 0.4, world.at - 40, world.at + 5)
    world.stop(world.at, {rank: DATA}, (rank,))
    layout = world.layout
    name = layout.names[gpu.node]
    return Truth((name, f"{name} rank {rank}"), (layout.gpu_name(gpu),))


@KINDS.kind("operators' reports: a node's disk is slow")
def slow_disk(world: World) -> Truth:
    """Let one node's data loading wait for its disk."""
    node = world.node()
    world.press(node, "io", world.strength(0.3, 0.8), world.at)
    seconds = world.extra()
    world.part(DATA, lambda now: seconds if now >= world.at else 0.0, world.all_gpus([node]))
    return _node(world, node, r"(?i)disk|storage|data|waits? (for|least)|ranks?")


@KINDS.kind("SmolLM3: storage is slow for everybody: data loading")
def data_loading(world: World) -> Truth:
    """Let all ranks wait for their data."""
    seconds = world.extra()
    for node in world.layout.members:
        world.press(node, "io", 0.2, world.at)
    world.part(DATA, lambda now: seconds * float(world.random.uniform(0.85, 1.15)) if now >= world.at else 0.0)
    return Truth(_ANYWHERE, (), r"(?i)data|storage")


@KINDS.kind("MegaScale: data loading of one rank is slow")
def data_loading_rank(world: World) -> Truth:
    """Let one rank wait for its data; a broken shard or worker."""
    gpu, seconds = world.gpu(), world.extra()
    world.part(DATA, lambda now: seconds if now >= world.at else 0.0, [gpu])
    layout = world.layout
    name = layout.names[gpu.node]
    return Truth((f"{name} rank {layout.rank_of(gpu)}", layout.gpu_name(gpu)), (name,), r"(?i)data|waits? (for|least)")


@KINDS.kind("SmolLM3, BLOOM: the storage server is slow: checkpoints take minutes")
def slow_checkpoint(world: World) -> Truth:
    """Let each checkpoint take far longer than before, so that little is left of the time between them."""
    world.script.checkpoint_every = 40.0
    world.script.checkpoint_seconds = 0.4
    seconds = world.extra() / world.layout.step * 40.0 * 0.5
    saves = [world.at + 40.0 * each for each in range(40)]
    world.script.parts.append((CHECKPOINT, _bursts(world, saves, seconds)))
    return Truth(_ANYWHERE, NOBODY, r"(?i)checkpoint|storage")


def _bursts(world: World, times: list[float], seconds: float) -> Effect:
    pending = list(times)

    def effect(now: float, _usual: Floats) -> Floats:
        late = 0.0
        while pending and pending[0] <= now:
            pending.pop(0)
            late += seconds
        return np.full(world.layout.ranks, late)

    return effect


@KINDS.kind("MegaScale: garbage collection, every rank in a step of its own")
def garbage_collection(world: World) -> Truth:
    """Let each rank collect in different steps: everybody waits for each in turn."""
    return _collect(world, together=False)


@KINDS.kind("MegaScale: garbage collection of all ranks together")
def garbage_together(world: World) -> Truth:
    """Let all ranks collect in the same steps."""
    return _collect(world, together=True)


def _collect(world: World, *, together: bool) -> Truth:
    ranks, seconds = world.layout.ranks, world.extra()
    every = 1 if together else 12
    pause = seconds if together else seconds * 1.1
    phase = np.zeros(ranks) if together else world.random.integers(0, every, ranks).astype(float)
    counter = [0]

    def effect(now: float, _usual: Floats) -> Floats:
        counter[0] += 1
        if now < world.at:
            return np.zeros(ranks)
        mine = (counter[0] + phase) % every == 0
        lengths: Floats = pause * world.random.uniform(0.8, 1.2, ranks)
        return np.where(mine, lengths, 0.0)

    world.script.parts.append((GC, effect))
    return Truth(_ANYWHERE, ("unknown",), r"(?i)garbage|\bgc\b")


@KINDS.kind("Llama 3, MegaScale: one rank falls silent")
def silent_rank(world: World) -> Truth:
    """Let one rank stop in its forward pass; all others wait for it."""
    gpu = world.gpu()
    layout, rank = world.layout, world.layout.rank_of(gpu)
    world.stop(world.at, {rank: FORWARD})
    name = layout.names[gpu.node]
    return Truth((f"{name} rank {rank}", layout.gpu_name(gpu)), (name,))


@KINDS.kind("Llama 3: one rank's process dies")
def dead_rank(world: World) -> Truth:
    """Let one rank's process die without a trace."""
    gpu = world.gpu()
    layout, rank = world.layout, world.layout.rank_of(gpu)
    world.stop(world.at, {rank: BACKWARD}, (rank,))
    name = layout.names[gpu.node]
    return Truth((f"{name} rank {rank}", layout.gpu_name(gpu)), (name,))


@KINDS.kind("Llama 3: a node dies with its exporter")
def dead_node(world: World) -> Truth:
    """Let a whole node vanish: its exporter and its ranks are silent."""
    node = world.node()
    ranks = [world.layout.rank_of(each) for each in world.all_gpus([node])]
    world.silence(node, world.at)
    world.stop(world.at, dict.fromkeys(ranks, BACKWARD), tuple(ranks))
    return _node(world, node)


@KINDS.kind("MegaScale: all ranks wait in a collective, nobody stands out")
def whole_hang(world: World) -> Truth:
    """Let everybody wait: a deadlock in a collective."""
    world.stop(world.at, {})
    return Truth(NOBODY)


@KINDS.kind("operators' reports: the culprit's exporter is dead")
def dead_exporter(world: World) -> Truth:
    """Overheat a GPU whose node's exporter has just died: only its silence is to be seen."""
    gpu = world.gpu()
    world.silence(gpu.node, world.at - float(world.random.uniform(20, 60)))
    world.slow([gpu], world.extra())
    name = world.layout.names[gpu.node]
    return Truth((name,), (), "", silent=rf"no data from {name}|{name}.{{0,60}}(silent|no data|does not answer)")


@KINDS.kind("Llama 3: day and night, a wave of 1 to 2 %")
def daily_wave(world: World) -> Truth:
    """Slow everybody by 2 % with the heat of the day."""
    world.wait_longer(0.02 * world.layout.step, world.at)
    return Truth(NOBODY, benign=True)


def _more_work(world: World, factor: float) -> None:
    """Multiply the work of a step; it takes a little longer than that."""
    share = 1 - world.drop()
    world.script.work.append(lambda now: factor if now >= world.at else 1.0)
    world.wait_longer(factor * world.layout.step * (1 / share - 1), world.at)


@KINDS.kind("BLOOM: the batch size changes")
def batch_change(world: World) -> Truth:
    """Double the global batch: steps take twice as long, the MFU falls a little less than it should."""
    _more_work(world, 2.0)
    world.configure(world.at, {"global_batch_size": "2048"})
    return Truth(NOBODY, (), r"(?i)config|batch|^$", benign=True)


@KINDS.kind("Llama 3: the sequence length changes")
def sequence_change(world: World) -> Truth:
    """Switch to longer sequences: less MFU by design (41 to 38 % and below)."""
    _more_work(world, 1.6)
    world.configure(world.at, {"sequence_length": "32768"})
    return Truth(NOBODY, (), r"(?i)config|sequence|^$", benign=True)


@KINDS.kind("SmolLM3: an evaluation")
def evaluation(world: World) -> Truth:
    """Evaluate for some minutes, tagged as such: no fault."""
    over = world.at + world.strength(60, 240)
    seconds = world.extra()
    world.part(EVAL, lambda now: seconds if world.at <= now < over else 0.0)
    world.script.tags.append((world.at, over, "eval"))
    return Truth(NOBODY, (), r"(?i)eval|^$", benign=True)


@KINDS.kind("BLOOM: warm-up after a restart")
def warm_up(world: World) -> Truth:
    """Ramp up after a restart: tagged, no fault."""
    over = world.at + world.strength(60, 200)
    seconds = world.extra()
    world.slow_while(
        world.all_gpus(world.layout.members),
        seconds,
        lambda now: max(0.0, (over - now) / (over - world.at)) if world.at <= now else 0.0,
    )
    world.script.tags.append((world.at, over, "ramp"))
    return Truth(NOBODY, (), r"(?i)ramp|warm|^$", benign=True)


@KINDS.kind("PyTorch users' reports: a new version of the code is slower")
def slower_code(world: World) -> Truth:
    """Compute longer on all ranks alike, with no restart seen: nobody's part."""
    world.slow(world.all_gpus(world.layout.members), world.extra())
    return Truth(NOBODY)
