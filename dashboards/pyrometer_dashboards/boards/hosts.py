"""Storage and hosts: which host is short of memory, waits for storage, has a full disk, or kernel errors."""

from __future__ import annotations

from pyrometer_dashboards import alert_panels, palette, panels, proof
from pyrometer_dashboards.common import CLUSTER, CLUSTERS, HOSTS, NODE_IS, NODE_OF_ROW, NODE_OF_SERIES, NODES, fired
from pyrometer_dashboards.model import Annotation, Board, Json, Panel, Query, Reading, Row
from pyrometer_dashboards.proof import Healthy

# All but the kernel's events come from node_exporter, which a cluster may not have.
_ABSENT = "no node_exporter"
_MEMORY = f"node:node_memory_available:ratio{{{CLUSTER}}}"
_DISKS = f"node:node_filesystem_avail:lowest{{{CLUSTER}}}"
_LEFT = [(None, palette.WORST), (0.05, palette.BAD), (0.1, palette.WATCH), (0.25, palette.QUIET)]
_HERE = Annotation("Alerts", fired(NODE_IS), "{{alertname}}", "{{node}}", palette.BAD, at_value=True)


def board() -> Board:
    """Return the board as data."""
    return Board(
        uid=HOSTS,
        title="Pyrometer / Storage and hosts",
        question="Which host is short of memory, waits for storage, has a full disk, or errors in its kernel's log?",
        needs="Prometheus' node_exporter beside ours",
        tags=["hardware"],
        time_from="now-6h",
        variables=[CLUSTERS, NODES],
        annotations=[_HERE],
        rows=[
            Row(panels.tiles(_memory(), _waiting(), _fullest(), _events_now()), height=3),
            Row(panels.tiles(_hosts()), height=11),
            Row(panels.tiles(_alerts(), _events()), height=11),
            Row(panels.tiles(_file_systems(), _events_over_time())),
            Row(panels.tiles(_pressure(), _busy())),
            Row(panels.tiles(_node_memory(), _node_pressure(), _node_disks()), title="The chosen node"),
        ],
    )


def _pressed(of: str) -> str:
    return f'node:node_pressure:ratio{{{CLUSTER}, of="{of}"}}'


def _memory() -> Panel:
    return panels.stat(
        "Least memory left",
        Reading(
            "The host with the smallest share of its memory available, from node_exporter.",
            "above 25 %.",
            "Open it: a rank's data loader that grows, or a page cache that is no cache (tmpfs).",
            "HostOutOfMemory",
        ),
        f"bottomk(1, {_MEMORY})",
        unit="percentunit",
        decimals=0,
        steps=_LEFT,
        name="{{node}}",
        link=NODE_OF_SERIES,
        no_value=_ABSENT,
    )


def _waiting() -> Panel:
    return panels.stat(
        "Waits for storage",
        Reading(
            "The host on which all tasks at once wait for storage for the largest share of the time (PSI), from "
            "node_exporter.",
            "below 5 %.",
            "One host: its disk. All at once: the shared file system, or a checkpoint.",
            "HostDiskErrors",
        ),
        f"topk(1, {_pressed('storage')})",
        unit="percentunit",
        decimals=0,
        steps=panels.LOST_TIME,
        name="{{node}}",
        link=NODE_OF_SERIES,
        no_value=_ABSENT,
    )


def _fullest() -> Panel:
    return panels.stat(
        "Fullest disk has left",
        Reading(
            "The local file system with the smallest share of space left: of 4 GiB or more, that can be written.",
            "above 25 %.",
            "Core files, logs, old checkpoints, container images: the table below has the mount point.",
            "HostDiskFull",
        ),
        f'label_join(bottomk(1, {_DISKS}), "who", " ", "node", "mountpoint")',
        unit="percentunit",
        decimals=0,
        steps=_LEFT,
        name="{{who}}",
        link=NODE_OF_SERIES,
        no_value=_ABSENT,
    )


def _events_now() -> Panel:
    events = f"node:pyrometer_kernel_events:rise10m{{{CLUSTER}}}"
    return panels.stat(
        "Kernel events, 10 min",
        Reading(
            "Processes killed for lack of memory, machine checks, PCIe errors and NVMe errors of all hosts within 10 "
            "minutes, from our own reader of the kernel's log.",
            "0.",
            "The table below has the host and the kind.",
            "HostMachineCheck",
        ),
        f"sum({events}) or on () 0 * max(cluster:pyrometer_kernel_events:count{{{CLUSTER}}} and on () {proof.NODES})",
        unit="locale",
        steps=[(None, palette.QUIET), (1, palette.BAD), (10, palette.WORST)],
    )


def _hosts() -> Panel:
    busiest = f"node:node_disk_io:busiest{{{CLUSTER}}}"
    wanted = (
        f"group by (node) (topk(5, {_pressed('CPU')}) or topk(5, {_pressed('memory')}) "
        f"or topk(5, {_pressed('storage')}) "
        f"or topk(5, {busiest}) or bottomk(5, {_MEMORY}) or bottomk(5, {_DISKS}))"
    )

    def of(expr: str) -> str:
        return f"max by (node) ({expr}) and on (node) {wanted}"

    def column(*steps: tuple[float | None, str]) -> Json:
        return panels.coloured(steps) | {"custom.width": 125}

    return panels.table(
        "Hosts that are worst at something",
        Reading(
            "The five hosts that are worst in each column: share of memory and of the fullest disk that is left, share "
            "of the time in which tasks wait for CPU, or all of them for memory and storage, and the busiest disk. "
            "From node_exporter.",
            "quiet cells.",
            "Open the row's node. A column of colour is a shared cause: the file system, a new image, a new job.",
            "HostOutOfMemory",
        ),
        [
            of(_MEMORY),
            of(_pressed("memory")),
            of(_pressed("storage")),
            of(_pressed("CPU")),
            of(_DISKS),
            of(busiest),
        ],
        {
            "node": "node",
            "Value #A": "memory left",
            "Value #B": "waits: memory",
            "Value #C": "waits: disk",
            "Value #D": "waits: CPU",
            "Value #E": "disk left",
            "Value #F": "disk busy",
        },
        unit="percentunit",
        decimals=0,
        sort="waits: disk",
        link=NODE_OF_ROW,
        fields={
            "memory left": column(*_LEFT),
            "waits: memory": column(*panels.LOST_TIME) | {"custom.width": 140},
            "waits: disk": column(*panels.LOST_TIME),
            "waits: CPU": column((None, palette.QUIET), (0.3, palette.WATCH), (0.6, palette.BAD)),
            "disk left": column(*_LEFT),
            "disk busy": column((None, palette.QUIET), (0.9, palette.WATCH)),
        },
        no_value=_ABSENT,
    )


def _alerts() -> Panel:
    return alert_panels.firing("Alerts of hosts", "Host.*", {"node": "node"}, runbook="HostDiskFull")


def _file_systems() -> Panel:
    return panels.table(
        "File systems that are nearly full",
        Reading(
            "Local file systems of which a tenth is left, or a quarter and none in a day at the rate of the last 6 "
            "hours; from node_exporter.",
            "'none nearly full'.",
            "Remove what is old before a checkpoint fails: HostDiskFull has the usual places.",
            "HostDiskFull",
        ),
        f"node:node_filesystem_avail:low{{{CLUSTER}}}",
        {"node": "node", "mountpoint": "mount point", "Value": "left"},
        unit="percentunit",
        decimals=1,
        steps=_LEFT,
        sort="left",
        falling=False,
        link=NODE_OF_ROW,
        fields={"left": panels.coloured() | {"custom.width": 100}},
        no_value=_ABSENT,
        healthy=Healthy("none nearly full", _DISKS),
    )


def _events() -> Panel:
    events = f"node:pyrometer_kernel_events:new5m{{{CLUSTER}}}"
    return panels.table(
        "Events of the kernels' logs in the range",
        Reading(
            "What the kernels of all hosts reported within the time range, by host and kind, the most first; counted "
            "every 5 minutes.",
            "'none in the range'.",
            "oom_kill: the job's memory. machine_check, pcie_aer, nvme: hardware, drain the node.",
            "HostPcieErrors",
        ),
        f"topk(20, sum by (node, kind) (sum_over_time({events}[$__range])))",
        {"node": "node", "kind": "kind", "Value": "events"},
        unit="locale",
        sort="events",
        link=NODE_OF_ROW,
        healthy=Healthy(
            "none in the range",
            f"{proof.past(f'cluster:pyrometer_kernel_events:count{{{CLUSTER}}}')} and on () {proof.NODES}",
        ),
    )


def _pressure() -> Panel:
    storage = _pressed("storage")
    return panels.lines(
        "Waiting for storage: worst five hosts",
        Reading(
            "Share of the time in which all tasks of a host wait for storage, of the five hosts that waited most in "
            "the range; from node_exporter.",
            "below 5 %, peaks at checkpoints.",
            "Lines that rise together: the shared file system.",
        ),
        Query(
            f"{storage} and on (node) topk(5, max by (node) (max_over_time({storage}[$__range] @ end())))",
            "{{node}}",
        ),
        unit="percentunit",
        limits=(0, 1),
        colour=panels.BY_WORST,
        steps=[(None, palette.HEALTHY), *panels.LOST_TIME[1:]],
        links=[NODE_OF_SERIES],
        no_value=_ABSENT,
    )


def _busy() -> Panel:
    return panels.lines(
        "Local disks of all hosts",
        Reading(
            "Bytes per second that all hosts together read from and write to their local disks, from node_exporter.",
            "peaks of writing at checkpoints, reading at the start.",
            "Reading that grows with time: the page cache is too small for the data.",
        ),
        Query(f"cluster:node_disk_bytes:rate2m{{{CLUSTER}}}", "{{way}}"),
        unit="Bps",
        limits=(0, None),
        overrides=[panels.fixed("read", palette.BAND), panels.fixed("written", palette.BESIDE)],
        no_value=_ABSENT,
    )


def _events_over_time() -> Panel:
    return panels.bars(
        "Kernel events over time",
        Reading(
            "What the kernels of all hosts reported, by kind, counted every 5 minutes.",
            "none.",
            "Many hosts at once: power, a driver, a job that runs out of memory everywhere.",
            "HostMachineCheck",
        ),
        Query(
            f"sum by (kind) (sum_over_time(node:pyrometer_kernel_events:new5m{{{CLUSTER}}}[$__interval]))",
            "{{kind}}",
            step="5m",
        ),
        unit="locale",
        decimals=0,
        watched=f"cluster:pyrometer_kernel_events:count{{{CLUSTER}}} and on () {proof.NODES}",
    )


def _node_memory() -> Panel:
    return panels.lines(
        "Memory available on the node",
        Reading(
            "Share of the chosen node's memory that is available, from node_exporter.",
            "a constant line, above 25 %.",
            "A slope ends in an oom_kill: look for the process that grows.",
            "HostOutOfMemory",
        ),
        Query(f"node:node_memory_available:ratio{{{NODE_IS}}}", "available"),
        unit="percentunit",
        limits=(0, 1),
        overrides=[panels.fixed("available", palette.BAND, lineWidth=2)],
        no_value=_ABSENT,
    )


def _node_pressure() -> Panel:
    return panels.lines(
        "What the node waits for",
        Reading(
            "Share of the time in which a task of the chosen node waits for CPU, and in which all wait for memory or "
            "storage, from node_exporter.",
            "below 5 %.",
            "memory: swapping or reclaim. storage: its disk or the shared file system.",
        ),
        Query(f"node:node_pressure:ratio{{{NODE_IS}}}", "{{of}}"),
        unit="percentunit",
        limits=(0, 1),
        overrides=[
            panels.fixed("CPU", palette.BAND),
            panels.fixed("memory", palette.PARTS["gc"]),
            panels.fixed("storage", palette.PARTS["wait"]),
        ],
        no_value=_ABSENT,
    )


def _node_disks() -> Panel:
    disks = f'node_disk_io_time_seconds_total{{{NODE_IS}, device!~"(dm-|loop|md|ram|sr).*"}}'
    return panels.lines(
        "How busy the node's disks are",
        Reading(
            "Share of the time in which each local disk of the chosen node works, from node_exporter. An NVMe disk at "
            "100 % may still do more.",
            "below 90 %.",
            "One busy alone: is the RAID degraded, or the disk about to fail? Compare the kernel's events.",
            "HostDiskErrors",
        ),
        Query(f"max by (device) (rate({disks}[$__rate_interval]))", "{{device}}"),
        unit="percentunit",
        limits=(0, 1),
        overrides=panels.numbered(r"nvme%sn"),
        no_value=_ABSENT,
    )
