"""Panels of collectives: the ranks that hung jobs wait for, from NCCL RAS, and bandwidth, from NCCL's Inspector."""

from __future__ import annotations

from pyrometer_dashboards import palette, panels, proof
from pyrometer_dashboards.common import CLUSTER, COLLECTIVES_OF_ROW, NODE_OF_ROW, RUN_IS
from pyrometer_dashboards.model import Override, Panel, Query, Reading
from pyrometer_dashboards.proof import Healthy

# The alert's own limits are between a minute and 15: below the first it is a step, a checkpoint, a validation.
_STANDS = [(None, palette.QUIET), (60, palette.WATCH), (480, palette.WORST)]
_OF_BEST = [(None, palette.WORST), (0.6, palette.BAD), (0.85, palette.WATCH), (0.95, palette.QUIET)]
_STANDSTILL = "max by (cluster, run, job_id) (pyrometer_nccl_standstill_seconds{%s}) > 30"
_AWAITED = "max by (run, job_id, node, gpu, rank, state, certain) (rank:pyrometer_nccl_rank_behind:named{%s})"


# Colours by ending, as runs have, would give these lines one colour: all names end alike.
_KINDS = ("AllReduce", "AllGather", "ReduceScatter", "SendRecv", "Broadcast")


def kinds() -> list[Override]:
    """Return series whose names begin with a kind of collective, each kind in its colour."""
    return [panels.begins(kind, colour) for kind, colour in zip(_KINDS, palette.RUNS, strict=True)]


def standing_jobs() -> Panel:
    """Return the jobs of the cluster of which no rank launches a collective."""
    return panels.table(
        "Jobs that launch no collective",
        Reading(
            "How long no rank of a job has launched a collective, from NCCL RAS, where that is more than 30 s.",
            "'all go on', or a minute or two while a checkpoint is saved.",
            "The table beside it has the rank that the job waits for.",
            "NcclHang",
        ),
        _STANDSTILL % CLUSTER,
        {"run": "run", "job_id": "job", "Value": "for"},
        unit="s",
        steps=_STANDS,
        sort="for",
        link=COLLECTIVES_OF_ROW,
        fields={"for": panels.coloured() | {"custom.width": 90}},
        healthy=Healthy("all go on", proof.RAS),
    )


def awaited_ranks(run: str = CLUSTER, *, span: int = 8) -> Panel:
    """Return the ranks that a collective waits for."""
    return panels.table(
        "Ranks behind in collectives",
        Reading(
            "Ranks that have launched fewer collectives than those that wait for them, or whose process is silent, "
            "from NCCL RAS: only while nothing moves. By how many they are behind; 'certain: no' where another rank "
            "could be meant as well.",
            "'none'.",
            "Open the node of the row: its GPU, its kernel log, /stacks of its exporter.",
            "NcclHang",
        ),
        f"topk(20, {_AWAITED % run})",
        ({"run": "run", "job_id": "job"} if run == CLUSTER else {})
        | {"node": "node", "gpu": "gpu", "rank": "rank", "state": "state", "certain": "certain", "Value": "behind"},
        unit="locale",
        steps=[(None, palette.WORST)],
        sort="behind",
        link=NODE_OF_ROW,
        fields={"behind": panels.coloured() | {"custom.width": 90}},
        healthy=Healthy("none", proof.RAS if run == CLUSTER else f"pyrometer_nccl_standstill_seconds{{{run}}}"),
        span=span,
    )


def lost_bandwidth() -> Panel:
    """Return the kinds of collectives of the cluster that move least of what they once moved."""
    return panels.table(
        "Collectives below their best",
        Reading(
            "Bandwidth of the median rank over 5 minutes, as a share of what a tenth of the last day exceeded, for "
            "each communicator size, collective and class of size, from NCCL's Inspector. The ten worst below 95 %.",
            "'none'.",
            "One run: Fabric, its nodes' links. All runs: a switch of the upper tier.",
            "NcclBandwidthDropped",
        ),
        f"bottomk(10, comm:pyrometer_nccl_bus_bandwidth:per_best1d{{{CLUSTER}}} < 0.95)",
        {
            "run": "run",
            "job_id": "job",
            "collective": "collective",
            "comm_ranks": "ranks",
            "size_class": "size",
            "Value": "of its best",
        },
        unit="percentunit",
        steps=_OF_BEST,
        sort="of its best",
        falling=False,
        link=COLLECTIVES_OF_ROW,
        fields={"of its best": panels.coloured() | {"decimals": 0, "custom.width": 120}},
        no_value="no data: no Inspector, or not for long enough",
        healthy=Healthy("none", proof.INSPECTOR),
    )


def standstill() -> Panel:
    """Return for how long no rank of the run has launched a collective, over time."""
    return panels.lines(
        "No collective launched for",
        Reading(
            "For how long no rank of the run has launched a collective, from NCCL RAS.",
            "0; peaks of a checkpoint's length.",
            "A slope that goes on is a hang: the table beside it names the rank.",
            "NcclHang",
        ),
        Query(f"max(pyrometer_nccl_standstill_seconds{{{RUN_IS}}})", "standstill"),
        unit="s",
        limits=(0, None),
        custom={"axisSoftMax": 60},
        overrides=[panels.fixed("standstill", palette.BAD, lineWidth=2)],
        no_value="no RAS",
        span=7,
    )


def bandwidth() -> Panel:
    """Return the bandwidth of the run's collectives over time."""
    return panels.lines(
        "Bandwidth, median rank",
        Reading(
            "Bus bandwidth of the median rank over 5 minutes, for each communicator size, collective and class of "
            "size, from NCCL's Inspector.",
            "constant lines; communicators within a node (NVLink) far above those between nodes.",
            "All lines between nodes fall: the network. One rank comes late: NcclStraggler names it.",
            "NcclBandwidthDropped",
        ),
        Query(
            f"comm:pyrometer_nccl_bus_bandwidth:median5m{{{RUN_IS}}}",
            "{{collective}} {{size_class}}, {{comm_ranks}} ranks",
        ),
        unit="Bps",
        limits=(0, None),
        overrides=kinds(),
        no_value="no Inspector",
    )


def all_reduce() -> Panel:
    """Return the lowest all-reduce bandwidths of nodes and of pairs of nodes."""
    return panels.table(
        "All-reduce of idle nodes, lowest",
        Reading(
            "Bus bandwidth that pyrometer-test measured last: within a node (nccl_all_reduce), and with a peer "
            "(nccl_all_reduce_pair), the lowest of each.",
            "all alike, above the least values of docs/active-tests.md.",
            "A node below the others: repeat its test. Slow with one peer alone: the path between the two.",
            "NodeTestFailed",
        ),
        "bottomk by (test) (12, min by (node, peer, test) "
        f'(pyrometer_active_test_result{{{CLUSTER}, test=~"nccl_all_reduce.*"}}))',
        {"node": "node", "peer": "peer", "test": "test", "Value": "GB/s"},
        unit="locale",
        decimals=0,
        sort="GB/s",
        falling=False,
        link=NODE_OF_ROW,
        no_value="no data: no node exports a test",
        span=24,
    )
