"""Kinds of incident in GPUs, their power and their cooling."""

from __future__ import annotations

import numpy as np

from pyrometer_simulator.incidents.cluster import Gpu
from pyrometer_simulator.incidents.training import BACKWARD
from pyrometer_simulator.incidents.world import KINDS, Truth, World, fatal_xid, truth_of_gpu

_HEAT = r"(?i)therm|heat|hot|cool|temperature|throttl|waits? (for|least)|slow"
_POWER = r"(?i)power|brake|throttl|waits? (for|least)|clock"
_CLOCK = r"(?i)clock|setting|waits? (for|least)|slow"


def _heat(world: World, gpus: list[Gpu], reasons: tuple[str, ...], share: float = 1.0) -> None:
    seconds = world.extra()
    clock = max(900.0, 1980 / (1 + seconds / (0.86 * world.layout.step)))
    celsius = world.strength(86, 92)
    spell = [(world.at, world.end)]
    world.throttle(gpus, reasons, spell, share=share, clock=clock, celsius=celsius, watts=430)
    world.slow(gpus, seconds)


def _node(world: World, node: int, words: str = "") -> Truth:
    layout = world.layout
    return Truth((layout.names[node],), tuple(layout.gpu_name(each) for each in world.all_gpus([node])), words)


def _rack(world: World, nodes: list[int], words: str = "") -> Truth:
    layout = world.layout
    inside = [layout.names[node] for node in nodes if node in layout.members]
    exact = (f"rack {layout.rack(nodes[0])}",) if len(inside) > 1 else (f"rack {layout.rack(nodes[0])}", *inside)
    return Truth(exact, (*inside, *(layout.gpu_name(each) for each in world.all_gpus(nodes))), words)


@KINDS.kind("Llama 3, SmolLM3: one GPU overheats")
def hot_gpu(world: World) -> Truth:
    """Overheat one GPU: hardware and software thermal slowdown."""
    gpu = world.gpu()
    _heat(world, [gpu], ("hw_thermal", "hw_slowdown"))
    return truth_of_gpu(world, gpu, _HEAT)


@KINDS.kind("SmolLM3: thermal throttling without the hardware's own slowdown")
def warm_gpu(world: World) -> Truth:
    """Let software hold one GPU's clock down for heat."""
    gpu = world.gpu()
    _heat(world, [gpu], ("sw_thermal",), world.strength(0.7, 1.0))
    return truth_of_gpu(world, gpu, _HEAT)


@KINDS.kind("Llama 3: throttling that comes and goes")
def pulsing_gpu(world: World) -> Truth:
    """Throttle one GPU by heat for most of each half minute."""
    world.lasting = False
    gpu, seconds = world.gpu(), world.extra()
    on = world.strength(16.0, 24.0)
    spells = [(world.at + 30.0 * each, world.at + 30.0 * each + on) for each in range(60)]
    world.throttle([gpu], ("sw_thermal",), spells, clock=1200.0, celsius=88.0, watts=430)
    world.slow_while([gpu], seconds * 30.0 / on, lambda now: now >= world.at and (now - world.at) % 30.0 < on)
    return truth_of_gpu(world, gpu, _HEAT)


@KINDS.kind("Imbue: power brake of a node after a failed supply")
def power_brake_node(world: World) -> Truth:
    """Brake all GPUs of a node by its external power brake."""
    node = world.node()
    gpus = world.all_gpus([node])
    world.throttle(
        gpus, ("hw_power_brake", "hw_slowdown"), [(world.at, world.end)], clock=world.strength(1100, 600), watts=280
    )
    world.slow(gpus, world.extra())
    return _node(world, node, _POWER)


def _limit_power(world: World, nodes: list[int]) -> None:
    """Lower the power limit of these nodes' GPUs; they are held by the power cap most of the time."""
    gpus, watts = world.all_gpus(nodes), round(world.strength(450, 320), -1)
    for node in nodes:
        world.limit[world.between(node, world.at), node] = watts
    spell, clock = [(world.at, world.end)], world.strength(1450, 1000)
    world.throttle(gpus, ("power_cap",), spell, share=0.48, clock=clock, watts=watts - 8)
    world.slow(gpus, world.extra())


@KINDS.kind("Fire-Flyer, operators' reports: a rack's power limit is lowered")
def rack_power_limit(world: World) -> Truth:
    """Lower the power limit of all GPUs in a rack."""
    nodes = world.layout.rack_nodes(world.node())
    _limit_power(world, nodes)
    return _rack(world, nodes, r"(?i)power")


@KINDS.kind("operators' reports: a node's power limit is lowered")
def node_power_limit(world: World) -> Truth:
    """Lower the power limit of one node's GPUs."""
    node = world.node()
    _limit_power(world, [node])
    return _node(world, node, r"(?i)power")


@KINDS.kind("Imbue, SmolLM3: application clocks left low on a node")
def application_clocks(world: World) -> Truth:
    """Set low application clocks on all GPUs of a node: no throttle reason but clocks_setting."""
    node = world.node()
    gpus = world.all_gpus([node])
    world.throttle(gpus, ("clocks_setting",), [(world.at, world.end)], clock=world.strength(1410, 900), watts=450)
    world.slow(gpus, world.extra())
    return _node(world, node, _CLOCK)


@KINDS.kind("operators' reports: one GPU's clocks are set low")
def clocks_setting_gpu(world: World) -> Truth:
    """Set one GPU's clocks low by a setting."""
    gpu = world.gpu()
    world.throttle([gpu], ("clocks_setting",), [(world.at, world.end)], clock=world.strength(1410, 900), watts=450)
    world.slow([gpu], world.extra())
    return truth_of_gpu(world, gpu, _CLOCK)


@KINDS.kind("Fire-Flyer: cooling of a rack fails")
def rack_cooling(world: World) -> Truth:
    """Overheat most GPUs of all nodes in a rack, the rack's first ones sooner."""
    nodes = world.layout.rack_nodes(world.node())
    gpus = [each for each in world.all_gpus(nodes) if world.random.random() < 0.8]
    seconds = world.extra()
    for each in gpus:
        begin = world.at + float(world.random.uniform(0, 40))
        world.throttle(
            [each],
            ("sw_thermal",),
            [(begin, world.end)],
            share=world.strength(0.6, 1.0),
            clock=1380,
            celsius=88,
            watts=450,
        )
    world.slow(gpus, seconds)
    return _rack(world, nodes, _HEAT)


@KINDS.kind("Imbue: a chassis fan fails")
def chassis_cooling(world: World) -> Truth:
    """Overheat most GPUs of one node."""
    node = world.node()
    gpus = world.all_gpus([node])
    gpus = [each for each in gpus if world.random.random() < 0.85] or gpus
    for each in gpus:
        begin = world.at + float(world.random.uniform(0, 20))
        world.throttle(
            [each],
            ("sw_thermal", "hw_slowdown"),
            [(begin, world.end)],
            share=world.strength(0.7, 1.0),
            clock=1250,
            celsius=89,
            watts=430,
        )
    world.slow(gpus, world.extra())
    return _node(world, node, _HEAT)


@KINDS.kind("MegaScale, Minder: a machine slower than others with healthy gauges")
def slow_gpu(world: World) -> Truth:
    """Slow one GPU's rank while all its gauges are healthy."""
    gpu = world.gpu()
    world.slow([gpu], world.extra())
    layout = world.layout
    rank = layout.rank_of(gpu)
    one = (layout.gpu_name(gpu), f"{layout.names[gpu.node]} rank {rank}")
    if layout.tensor > 1:  # its tensor-parallel group waits alike: nothing tells them apart
        return Truth((layout.names[gpu.node],), one)
    return Truth(one, (layout.names[gpu.node],))


@KINDS.kind("MegaScale: a slow host")
def slow_node(world: World) -> Truth:
    """Slow all ranks of a node, with healthy gauges."""
    node = world.node()
    gpus = world.all_gpus([node])
    world.slow(gpus, world.extra())
    ranks = [f"{world.layout.names[node]} rank {world.layout.rank_of(each)}" for each in gpus]
    truth = _node(world, node)
    return Truth(truth.exact, (*truth.coarse, *ranks))


@KINDS.kind("Imbue: PCIe link trained to fewer lanes")
def pcie_narrow(world: World) -> Truth:
    """Narrow one GPU's PCIe link: its rank is slow."""
    gpu = world.gpu()
    lanes = 8.0 if world.severity == "mild" else 4.0
    world.width[world.between(gpu.node, world.at), gpu.node, gpu.gpu] = lanes
    world.slow([gpu], world.extra())
    return truth_of_gpu(world, gpu, r"(?i)pcie")


@KINDS.kind("Llama 3: a GPU falls off the bus (Xid 79), the job hangs")
def lost_gpu(world: World) -> Truth:
    """Lose a GPU: its process dies, everybody else waits."""
    gpu = world.gpu()
    rank = world.layout.rank_of(gpu)
    world.xid(gpu, "79", "critical", world.at)
    world.lose_gpu(gpu, world.at)
    world.event(gpu.node, "pcie_aer", world.at)
    world.stop(world.at, {rank: BACKWARD}, (rank,))
    return truth_of_gpu(world, gpu)


@KINDS.kind("Llama 3: Xid 95, uncontained memory error")
def xid_uncontained(world: World) -> Truth:
    """Report an uncontained memory error, of which the process dies."""
    gpu = fatal_xid(world, "95")
    world.ecc[world.between(gpu.node, world.at), gpu.node, gpu.gpu] = 1.0
    world.recovery[world.between(gpu.node, world.at), gpu.node, gpu.gpu] = 1.0
    return truth_of_gpu(world, gpu)


@KINDS.kind("Llama 3: double-bit ECC error (Xid 48)")
def xid_ecc(world: World) -> Truth:
    """Report a double-bit ECC error; the process dies."""
    gpu = fatal_xid(world, "48")
    world.ecc[world.between(gpu.node, world.at), gpu.node, gpu.gpu] = 2.0
    return truth_of_gpu(world, gpu)


@KINDS.kind("Llama 3: a GPU hangs without a word")
def hung_gpu(world: World) -> Truth:
    """Let one rank stop in its backward pass; its process lives."""
    gpu = world.gpu()
    layout, rank = world.layout, world.layout.rank_of(gpu)
    world.stop(world.at, {rank: BACKWARD})
    return Truth((f"{layout.names[gpu.node]} rank {rank}", layout.gpu_name(gpu)), (layout.names[gpu.node],))


@KINDS.kind("Imbue, Fire-Flyer: NVLink lost (Xid 74)")
def nvlink_down(world: World) -> Truth:
    """Take some of a GPU's NVLinks down: its traffic is slow."""
    gpu = world.gpu()
    world.nvlinks[world.between(gpu.node, world.at), gpu.node, gpu.gpu] = 18 - round(world.strength(1, 8))
    world.xid(gpu, "74", "critical", world.at)
    world.slow([gpu], world.extra())
    return truth_of_gpu(world, gpu, r"(?i)nvlink|xid 74|critical xid|waits? (for|least)")


@KINDS.kind("Imbue: NVSwitch with a fatal SXid")
def nvswitch_error(world: World) -> Truth:
    """Report a fatal SXid of a node's NVSwitch: all its ranks are slow."""
    node = world.node()
    world.sxids[node] = np.zeros(len(world.grid)) + (world.times[:, node] >= world.at)
    world.event(node, "sxid", world.at, 2)
    world.slow(world.all_gpus([node]), world.extra())
    return _node(world, node, r"(?i)nvswitch|sxid|waits? (for|least)")


@KINDS.kind("BLOOM: a GPU that throttles on hardware slowdown alone")
def hardware_slowdown(world: World) -> Truth:
    """Hold one GPU by hardware slowdown, for no reason that it names."""
    gpu = world.gpu()
    world.throttle([gpu], ("hw_slowdown",), [(world.at, world.end)], clock=world.strength(1300, 600), watts=350)
    world.slow([gpu], world.extra())
    return truth_of_gpu(world, gpu, r"(?i)slowdown|throttl|waits? (for|least)|clock")


@KINDS.kind("operators' reports: two GPUs of different nodes overheat at once")
def two_hot_gpus(world: World) -> Truth:
    """Overheat two GPUs on two nodes at the same time; either one first is right."""
    first, second = world.gpu(), world.gpu()
    while second.node == first.node:
        second = world.gpu()
    _heat(world, [first, second], ("hw_thermal", "hw_slowdown"))
    names = tuple(world.layout.gpu_name(each) for each in (first, second))
    return Truth(names, tuple(world.layout.names[each.node] for each in (first, second)), _HEAT)


@KINDS.kind("operators' reports: a short spell of heat that passes")
def passing_heat(world: World) -> Truth:
    """Overheat one GPU for three to five minutes; then it is well again."""
    world.lasting = False
    gpu, seconds = world.gpu(), world.extra()
    over = world.at + float(world.random.uniform(180, 300))
    world.throttle([gpu], ("sw_thermal",), [(world.at, over)], clock=1280, celsius=88, watts=430)
    world.slow([gpu], seconds, end=over)
    return truth_of_gpu(world, gpu, _HEAT)
