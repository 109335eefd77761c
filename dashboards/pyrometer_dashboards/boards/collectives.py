"""Collectives: which job hangs, for which rank it waits, and which collectives move less than they did."""

from __future__ import annotations

from dataclasses import replace

from pyrometer_dashboards import alert_panels, collective_panels, palette, panels, proof
from pyrometer_dashboards.common import (
    CLUSTER,
    CLUSTERS,
    COLLECTIVES,
    CRITICAL,
    NODE_OF_ROW,
    RESTARTS,
    RUN_CHOICE,
    RUN_IS,
    RUN_OF_ROW,
    leading_to,
)
from pyrometer_dashboards.model import Board, Panel, Query, Reading, Row
from pyrometer_dashboards.proof import Healthy

_RANKS = f'pyrometer_nccl_communicator_ranks{{{CLUSTER}, state!="ready"}}'


def board() -> Board:
    """Return the board as data."""
    return Board(
        uid=COLLECTIVES,
        title="Pyrometer / Collectives",
        question="Which job hangs, for which rank does it wait, and which collectives move less than they did?",
        needs="NCCL's RAS or Inspector, read by the node exporter",
        tags=["training"],
        time_from="now-3h",
        refresh="30s",
        variables=[CLUSTERS, *RUN_CHOICE],
        annotations=[CRITICAL, RESTARTS],
        rows=[
            Row(panels.tiles(_jobs(), _longest(), _lowest(), _not_ready()), height=3),
            Row([collective_panels.standing_jobs(), collective_panels.awaited_ranks(span=16)], height=6),
            Row([replace(collective_panels.lost_bandwidth(), span=13), _late()], height=15),
            Row(panels.tiles(_alerts()), height=7),
            Row([_states(), collective_panels.standstill(), _progress()], title="The chosen run"),
            Row([collective_panels.bandwidth(), _times(), _against_best()]),
            Row(panels.tiles(_readers(), _versions()), height=7),
            Row([collective_panels.all_reduce()], height=7),
        ],
    )


def _jobs() -> Panel:
    return panels.stat(
        "Jobs with RAS",
        Reading(
            "Jobs whose collectives are counted, from NCCL RAS: NCCL 2.24 and newer, one asker for each job.",
            "all jobs that train.",
            "None: is --collector.nccl on, and does the job leave RAS on (NCCL_RAS_ENABLE)?",
            "NcclJobNotStarted",
        ),
        f"count(max by (run, job_id) (pyrometer_nccl_communicators{{{CLUSTER}}}))",
        unit="locale",
        no_value="no RAS",
    )


def _longest() -> Panel:
    return panels.stat(
        "Longest standstill",
        Reading(
            "The longest time for which no rank of a job has launched a collective.",
            "0; a checkpoint's length now and then.",
            "The tables below have the job, and the rank that it waits for.",
            "NcclHang",
        ),
        panels.worst(
            f"max by (run, job_id) (pyrometer_nccl_standstill_seconds{{{CLUSTER}}})", 30, "$1 $2", "run", "job_id"
        ),
        unit="s",
        decimals=0,
        steps=[(None, palette.QUIET), (60, palette.WATCH), (480, palette.WORST)],
        name="{{who}}",
        no_value="no RAS",
    )


def _lowest() -> Panel:
    return panels.stat(
        "Lowest, of its best",
        Reading(
            "The kind of collective that moves least of what it once moved, from NCCL's Inspector: 5 minutes against "
            "the last day.",
            "above 95 %.",
            "The table below has the kinds; Fabric has the links.",
            "NcclBandwidthDropped",
        ),
        f"min({proof.INSPECTOR})",
        unit="percentunit",
        decimals=0,
        steps=[(None, palette.WORST), (0.6, palette.BAD), (0.85, palette.WATCH), (0.95, palette.QUIET)],
        no_value="unknown",
    )


def _not_ready() -> Panel:
    return panels.stat(
        "Ranks not ready",
        Reading(
            "Ranks of all communicators that are missing, dead, in error, silent or still starting, from NCCL RAS.",
            "0.",
            "Open the run below: the communicators by state.",
            "NcclRankMissing",
        ),
        f"sum(max by (run, job_id, comm, state) ({_RANKS})) or on () 0 * max({proof.RAS})",
        unit="locale",
        steps=[(None, palette.QUIET), (1, palette.WORST)],
        no_value="no RAS",
    )


def _late() -> Panel:
    culprit = "job:pyrometer_nccl_collective_seconds:culprit"
    return panels.table(
        "Ranks and nodes that come late",
        Reading(
            "Ranks that spend far less time in a collective than the others of their node, and nodes than other nodes: "
            "the others wait in it for them. From NCCL's Inspector; by how much they come late.",
            "'none late'.",
            "Open the node: is the GPU throttled, the host short of memory, the data slow?",
            "NcclStraggler",
        ),
        f"max by (run, job_id, node, gpu, rank) ({culprit}{{{CLUSTER}}})",
        {"run": "run", "job_id": "job", "node": "node", "gpu": "gpu", "rank": "rank", "Value": "late by"},
        unit="s",
        steps=[(None, palette.BAD)],
        sort="late by",
        link=NODE_OF_ROW,
        fields={"late by": panels.coloured(), "run": leading_to(RUN_OF_ROW)},
        healthy=Healthy("none late", f'pyrometer_nccl_collective_seconds{{{CLUSTER}, stat="median"}}'),
        span=11,
    )


def _alerts() -> Panel:
    return alert_panels.firing(
        "Alerts of collectives", "Nccl.*", {"run": "run", "job_id": "job", "node": "node"}, runbook="NcclHang", span=14
    )


def _states() -> Panel:
    return panels.table(
        "Communicators and their ranks by state",
        Reading(
            "The communicators of the chosen run: their ranks by state, and by how many launches the first rank is "
            "ahead of the last.",
            "all ready; ahead by a few at most.",
            "A rank missing or dead is the one that the others wait for. Ahead by many while nothing moves: a hang.",
            "NcclRankMissing",
        ),
        [
            f"sort_desc(max by (comm, state) (pyrometer_nccl_communicator_ranks{{{RUN_IS}}} > 0))",
            (
                "max by (comm) (max by (comm, collective) (last_over_time(pyrometer_nccl_communicator_collectives_total"
                f'{{{RUN_IS}, bound="max"}}[2m])) - max by (comm, collective) (last_over_time('
                f'pyrometer_nccl_communicator_collectives_total{{{RUN_IS}, bound="min"}}[2m])))'
            ),
        ],
        {"comm": "communicator", "state": "state", "Value #A": "ranks", "Value #B": "ahead"},
        unit="locale",
        sort="state",
        no_value="no RAS",
        span=9,
    )


def _progress() -> Panel:
    counts = f'pyrometer_nccl_communicator_collectives_total{{{RUN_IS}, bound="min"}}'
    return panels.lines(
        "Collectives launched per second",
        Reading(
            "How often each communicator of the run launches each collective, by the rank that launched least.",
            "constant lines.",
            "All lines fall to 0: a hang, a checkpoint, or the end.",
            "NcclHang",
        ),
        Query(f"max by (comm, collective) (rate({counts}[$__rate_interval]))", "{{collective}} of {{comm}}"),
        unit="none",
        limits=(0, None),
        overrides=panels.named(),
        no_value="no RAS",
    )


def _times() -> Panel:
    return panels.lines(
        "Time of a collective, slowest rank",
        Reading(
            "The longest mean time of each kind of collective on any rank of the run, waiting for others included, "
            "from NCCL's Inspector.",
            "constant lines.",
            "It rises while bandwidth falls: the network. It rises alone: a rank comes late.",
            "NcclStraggler",
        ),
        Query(
            "max by (collective, size_class, comm_ranks) "
            f'(pyrometer_nccl_collective_seconds{{{RUN_IS}, stat="worst"}})',
            "{{collective}} {{size_class}}, {{comm_ranks}} ranks",
        ),
        unit="s",
        limits=(0, None),
        overrides=collective_panels.kinds(),
        no_value="no Inspector",
    )


def _against_best() -> Panel:
    return panels.lines(
        "Bandwidth, of its best in a day",
        Reading(
            "Bandwidth of the median rank as a share of what a tenth of the last day exceeded, by kind of collective.",
            "around 100 %.",
            "All kinds between nodes: a switch. One size: an algorithm or a setting changed.",
            "NcclBandwidthDropped",
        ),
        Query(
            f"comm:pyrometer_nccl_bus_bandwidth:per_best1d{{{RUN_IS}}}",
            "{{collective}} {{size_class}}, {{comm_ranks}} ranks",
        ),
        unit="percentunit",
        limits=(0, None),
        overrides=collective_panels.kinds(),
        no_value="no Inspector, or not for long enough",
    )


def _readers() -> Panel:
    files = f"pyrometer_nccl_inspector_files{{{CLUSTER}}}"
    return panels.table(
        "Files of the Inspector, by state",
        Reading(
            "Files of NCCL's Inspector that the exporters found, by state: stale ones were not written for 150 s.",
            "read only.",
            "torn or stale: is the folder shared by two jobs, or full?",
        ),
        f"sum by (state) ({files})",
        {"state": "state", "Value": "files"},
        unit="locale",
        sort="files",
        no_value="no Inspector",
    )


def _versions() -> Panel:
    return panels.table(
        "Jobs, and the NCCL that they run",
        Reading(
            "Each job that RAS answers for: its version of NCCL, ranks, nodes, communicators. The format text (before "
            "2.28.7) has only the ranks that differ.",
            "one version for all.",
            "Two versions: compare their bandwidth before the next long run.",
        ),
        "max by (run, job_id, nccl_version, ranks, nodes, format) "
        f"(pyrometer_nccl_job_info{{{CLUSTER}}} * on (node, run, job_id) group_left () "
        f"max by (node, run, job_id) (pyrometer_nccl_communicators{{{CLUSTER}}}))",
        {
            "run": "run",
            "job_id": "job",
            "nccl_version": "NCCL",
            "ranks": "ranks",
            "nodes": "nodes",
            "format": "format",
            "Value": "communicators",
        },
        unit="locale",
        sort="run",
        falling=False,
        link=RUN_OF_ROW,
        fields={name: {"custom.width": 66} for name in ("job", "NCCL", "ranks", "nodes", "format")},
        no_value="no RAS",
    )
