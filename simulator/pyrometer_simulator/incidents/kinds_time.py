"""Kinds of incident that are about time: restarts, several faults at once, what comes back, what grows."""

from __future__ import annotations

from pyrometer_simulator.incidents.cluster import Gpu
from pyrometer_simulator.incidents.training import BACKWARD, DATA, FORWARD
from pyrometer_simulator.incidents.world import KINDS, Truth, World, fatal_xid, truth_of_gpu

NOBODY = ("no single part", "unknown")
_HEAT = r"(?i)therm|heat|hot|cool|temperature|throttl|waits? (for|least)"


def _hot(world: World, gpu: Gpu, end: float | None = None) -> Truth:
    """Overheat a GPU until a time, else to the end."""
    over = world.end if end is None else end
    world.throttle([gpu], ("hw_thermal", "hw_slowdown"), [(world.at, over)], clock=1230, celsius=89, watts=430)
    world.slow([gpu], world.extra(), end=over)
    return truth_of_gpu(world, gpu, _HEAT)


@KINDS.kind("Llama 3: a restart leaves the culprit behind")
def culprit_replaced(world: World) -> Truth:
    """Overheat a GPU; after some minutes the job starts again with a spare in its node's place."""
    world.lasting = False
    gpu = world.gpu()
    over = world.at + float(world.random.uniform(240, 420))
    truth = _hot(world, gpu, over)
    spares = world.layout.strangers
    nodes = list(world.layout.members)
    if spares:
        nodes[nodes.index(gpu.node)] = spares[0]
    world.script.stop = (over, {}, ())
    world.script.restart = (over + 100.0, nodes)
    return truth


@KINDS.kind("Llama 3: the job is preempted by the scheduler, and starts again")
def preempted(world: World) -> Truth:
    """Stop the run for some minutes, on its own accord, and start it again on the same nodes."""
    world.script.stop = (world.at, {}, ())
    world.script.restart = (world.at + world.strength(150, 400), list(world.layout.members))
    return Truth(NOBODY, benign=True)


@KINDS.kind("PyTorch users' reports: a new version of the code, after a restart")
def slower_version(world: World) -> Truth:
    """Start the run again, and let it be slower on all ranks alike."""
    begin = world.at + 100.0
    world.script.stop = (world.at, {}, ())
    world.script.restart = (begin, list(world.layout.members))
    world.slow(world.all_gpus(world.layout.members), world.extra(), begin=begin)
    return Truth(NOBODY, (), r"(?i)restart|version|code|config|all ranks|^")


@KINDS.kind("operators' reports: the culprit's exporter is restarted meanwhile")
def exporter_blinks(world: World) -> Truth:
    """Overheat a GPU; its exporter is away for two minutes in the middle."""
    gpu = world.gpu()
    begin = world.at + float(world.random.uniform(150, 400))
    world.silence(gpu.node, begin, begin + 120.0)
    return _hot(world, gpu)


@KINDS.kind("operators' reports: an innocent node's exporter dies at the same time")
def innocent_silence(world: World) -> Truth:
    """Overheat a GPU, and silence another node's exporter."""
    gpu, other = world.gpu(), world.node()
    if other == gpu.node:
        other = next(node for node in world.layout.members if node not in (gpu.node, world.layout.first))
    world.silence(other, world.at + float(world.random.uniform(-30, 60)))
    return _hot(world, gpu)


@KINDS.kind("operators' reports: a GPU and a link at once")
def gpu_and_link(world: World) -> Truth:
    """Overheat a GPU and let a link of another node flap: either one first is right."""
    gpu, node, port = world.gpu(), world.node(), world.port()
    truth = _hot(world, gpu)
    times = [world.at + 35.0 * each for each in range(60) if world.at + 35.0 * each < world.end]
    world.flap(node, port, times, 3.0)
    world.stall_at(times, 5.0)
    link = world.layout.port_name(node, port)
    return Truth((*truth.exact, link), (*truth.coarse, world.layout.names[node]), _HEAT + "|link|flap")


@KINDS.kind("Llama 3: heat that comes back")
def returning_heat(world: World) -> Truth:
    """Overheat a GPU for two minutes, every five minutes."""
    world.lasting = False
    gpu, seconds = world.gpu(), world.extra()
    spells = [(world.at + 300.0 * each, world.at + 300.0 * each + 120.0) for each in range(5)]
    world.throttle([gpu], ("sw_thermal",), spells, clock=1250, celsius=88, watts=430)
    for begin, end in spells:
        world.slow([gpu], seconds, begin=begin, end=end)
    return truth_of_gpu(world, gpu, _HEAT)


@KINDS.kind("Fire-Flyer: cooling of the whole hall")
def hall_cooling(world: World) -> Truth:
    """Overheat nearly all GPUs of the run."""
    seconds = world.extra()
    gpus = [each for each in world.all_gpus(range(len(world.layout.names))) if world.random.random() < 0.9]
    for each in gpus:
        begin = world.at + float(world.random.uniform(0, 30))
        share = world.strength(0.6, 1.0)
        world.throttle([each], ("sw_thermal",), [(begin, world.end)], share=share, clock=1400, celsius=87, watts=450)
    world.slow(gpus, seconds)
    layout = world.layout
    racks = {layout.rack(node) for node in layout.members}
    home = tuple(f"rack {rack}" for rack in racks) if len(racks) == 1 else ()  # the run sees no farther
    return Truth(("no single part", "cluster", *home), tuple(layout.names[node] for node in layout.members), _HEAT)


@KINDS.kind("operators' reports: two of a node's GPUs overheat")
def two_gpus_of_a_node(world: World) -> Truth:
    """Overheat two GPUs of one node."""
    gpu = world.gpu()
    pair = [gpu, Gpu(gpu.node, (gpu.gpu + 1) % 8)]
    world.throttle(pair, ("hw_thermal", "hw_slowdown"), [(world.at, world.end)], clock=1230, celsius=89, watts=430)
    world.slow(pair, world.extra())
    name = world.layout.names[gpu.node]
    ranks = tuple(f"{name} rank {world.layout.rank_of(each)}" for each in pair)
    return Truth(tuple(world.layout.gpu_name(each) for each in pair), (name, *ranks), _HEAT)


@KINDS.kind("Imbue: rare deep stalls, a storage server")
def storage_stalls(world: World) -> Truth:
    """Let all ranks wait deeply for their data, every minute or two."""
    pending, now = [], world.at
    while now < world.end:
        pending.append(now)
        now += float(world.random.uniform(40, 75))
    length = max(world.strength(9.0, 25.0), 6 * world.layout.step)

    def seconds(at: float) -> float:
        late = 0.0
        while pending and pending[0] <= at:
            pending.pop(0)
            late += length
        return late

    world.part(DATA, seconds)
    for node in world.layout.members:
        world.press(node, "io", 0.15, world.at)
    return Truth(("no single part",), ("unknown",), r"(?i)data|storage")


@KINDS.kind("Imbue: a slow decline over minutes")
def gradual_decline(world: World) -> Truth:
    """Let all ranks become slower and slower, by fragmentation of memory."""
    seconds = world.extra()
    everybody = world.all_gpus(world.layout.members)
    world.slow_while(everybody, seconds, lambda now: min(max((now - world.at) / 600.0, 0.0), 1.5))
    return Truth(NOBODY)


@KINDS.kind("Imbue: slow from its start, one narrow PCIe link")
def narrow_from_start(world: World) -> Truth:
    """Let the run be slow from its start; the job says what it expects."""
    gpu = world.gpu()
    seconds = world.extra()
    world.script.given = True
    world.at = world.begin + 1.0
    world.width[:, gpu.node, gpu.gpu] = 4.0
    world.slow([gpu], seconds, begin=0.0)
    name = world.layout.names[gpu.node]
    return Truth((world.layout.gpu_name(gpu),), (name, f"{name} rank {world.layout.rank_of(gpu)}"), r"(?i)pcie")


@KINDS.kind("Llama 3: machine checks, the node's CPUs slow")
def machine_check(world: World) -> Truth:
    """Report machine checks of a node, whose ranks are slow."""
    return _events(world, "machine_check", 3, r"(?i)machine check|waits? (for|least)|ranks?")


@KINDS.kind("operators' reports: CPU soft lockups")
def soft_lockup(world: World) -> Truth:
    """Report soft lockups of a node's CPUs, whose ranks are slow."""
    return _events(world, "soft_lockup", 4, r"(?i)lockup|waits? (for|least)|ranks?|cpu")


def _events(world: World, kind: str, count: int, words: str) -> Truth:
    node = world.node()
    for each in range(count):
        world.event(node, kind, world.at + 20.0 * each)
    gpus = world.all_gpus([node])
    world.slow(gpus, world.extra())
    name = world.layout.names[node]
    parts = [world.layout.gpu_name(each) for each in gpus]
    return Truth((name,), (*parts, *(f"{name} rank {world.layout.rank_of(each)}" for each in gpus)), words)


@KINDS.kind("Llama 3: GSP timeout (Xid 119), the GPU hangs")
def xid_gsp(world: World) -> Truth:
    """Let a GPU's system processor time out: the rank hangs, the GPU wants a reset."""
    gpu = world.gpu()
    rank = world.layout.rank_of(gpu)
    world.xid(gpu, "119", "critical", world.at + 5)
    world.lose_gpu(gpu, world.at + 5, "reset_required")
    world.stop(world.at, {rank: FORWARD})
    return truth_of_gpu(world, gpu)


@KINDS.kind("Llama 3: contained memory error (Xid 94), the process dies")
def xid_contained(world: World) -> Truth:
    """Report a contained memory error, of which the process dies."""
    gpu = fatal_xid(world, "94")
    world.xid(gpu, "63", "warning", world.at)
    return truth_of_gpu(world, gpu)


@KINDS.kind("BLOOM: a checkpoint that never ends on one rank")
def stuck_checkpoint(world: World) -> Truth:
    """Let one rank hang in a checkpoint, its node waiting for storage; the others wait."""
    gpu = world.gpu()
    rank = world.layout.rank_of(gpu)
    world.press(gpu.node, "io", 0.6, world.at)
    world.stop(world.at, {rank: BACKWARD})
    name = world.layout.names[gpu.node]
    return Truth((f"{name} rank {rank}", world.layout.gpu_name(gpu)), (name,))


@KINDS.kind("SmolLM3: ordinary checkpoints")
def usual_checkpoints(world: World) -> Truth:
    """Save ordinary checkpoints every two minutes: no fault."""
    world.script.checkpoint_every = 120.0
    world.script.checkpoint_seconds = world.strength(4.0, 15.0)
    return Truth(NOBODY, (), r"(?i)checkpoint|^$", benign=True)
