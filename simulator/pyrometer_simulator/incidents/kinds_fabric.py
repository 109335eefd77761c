"""Kinds of incident in links, rails, switches and congestion."""

from __future__ import annotations

from pyrometer_simulator.incidents.cluster import LEAF_NODES
from pyrometer_simulator.incidents.world import KINDS, Truth, World

_LINK = r"(?i)link|flap|port|waits? (for|least)"


def _flaps(world: World, pause: tuple[float, float], seconds: float) -> Truth:
    """Let one link flap until the end, each time with a stall of the run."""
    world.lasting = False
    node, port = world.node(), world.port()
    times, now = [], world.at
    while now < world.end:
        times.append(now)
        now += float(world.random.uniform(*pause))
    world.flap(node, port, times, seconds)
    world.stall_at(times, seconds + world.strength(1.0, 6.0))
    world.wait_longer(world.extra(), world.at)
    layout = world.layout
    return Truth((layout.port_name(node, port),), (layout.names[node],), _LINK)


@KINDS.kind("Imbue, Llama 3: a link flaps")
def flapping_link(world: World) -> Truth:
    """Let a link go down for seconds, again and again."""
    return _flaps(world, (15.0, 50.0), 3.0)


@KINDS.kind("MegaScale: a link flaps with long pauses")
def slow_flapping(world: World) -> Truth:
    """Let a link flap with pauses of more than a minute, the run slow between them as traffic is rerouted."""
    return _flaps(world, (70.0, 200.0), 4.0)


@KINDS.kind("Llama 3: a link stays down")
def link_down(world: World) -> Truth:
    """Take a link down for good: traffic goes over the other rails."""
    node, port = world.node(), world.port()
    world.flap(node, port, [world.at], 1e9)
    world.wait_longer(world.extra(), world.at)
    layout = world.layout
    return Truth((layout.port_name(node, port),), (layout.names[node],), _LINK)


@KINDS.kind("Imbue: a link trains to a lower rate")
def degraded_rate(world: World) -> Truth:
    """Lower a link's rate: all wait for what goes over it."""
    node, port = world.node(), world.port()
    rate = 2e11 if world.severity == "mild" else 1e11
    world.ports.rate[world.between(node, world.at), node, port] = rate
    world.wait_longer(world.extra(), world.at)
    layout = world.layout
    return Truth((layout.port_name(node, port),), (layout.names[node],), r"(?i)rate|degraded|link")


@KINDS.kind("Imbue, Fire-Flyer: a leaf switch fails")
def leaf_switch(world: World) -> Truth:
    """Take all ports at a leaf switch down."""
    layout, rail, node = world.layout, world.port(), world.node()
    pod = node // LEAF_NODES
    nodes = [each for each in range(len(layout.names)) if each // LEAF_NODES == pod]
    for each in nodes:
        world.flap(each, rail, [world.at + float(world.random.uniform(0, 2))], 1e9)
    world.wait_longer(world.extra(), world.at)
    exact = (f"switch {layout.switch(node, rail)}",) if layout.fabric else (f"rail {rail}", "no single part")
    few = len(nodes) < 5
    ports = tuple(layout.port_name(each, rail) for each in nodes)
    return Truth((*exact, *(ports if few else ())), (f"rail {rail}", *ports), _LINK)


@KINDS.kind("Imbue: network congestion, all ports wait")
def congestion(world: World) -> Truth:
    """Let all ports wait for credits: nobody's own fault."""
    for node in world.layout.members:
        world.ports.wait_rate[world.between(node, world.at), node] = 4e7
    world.wait_longer(world.extra(), world.at)
    return Truth(("unknown", "no single part"), (), r"(?i)congest|network|fabric|communicat|^$")


@KINDS.kind("Imbue: symbol errors and retransmissions on one link")
def noisy_link(world: World) -> Truth:
    """Let one link make errors and be trained again: short losses, close together, then longer ones."""
    return _flaps(world, (6.0, 30.0), 1.0)
