"""The metrics of Slurm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from pyrometer_exporters.cluster.slurm import jobs as job_states
from pyrometer_exporters.cluster.slurm import nodes as node_states
from pyrometer_exporters.cluster.slurm.jobs import Job, Queue, WatchedRun
from pyrometer_exporters.cluster.slurm.nodes import UNAVAILABLE, Node
from pyrometer_exporters.framework.metrics import Down, Families, Sample

# fmt: off
_ROWS = Families()
RUN_JOBS = _ROWS.gauge("pyrometer_slurm_run_jobs",
    "Jobs of a run that is watched (--collector.slurm.run), by state: running; queued; blocked, which won't start on "
    "its own (held, a dependency that can't be met, suspended); ending; other. All 0: nothing is training and nothing "
    "will.", "run", "state")
RUN_JOB_INFO = _ROWS.gauge("pyrometer_slurm_run_job_info",
    "1 for each job of a watched run; reason is Slurm's, for one that doesn't run.",
    "run", "job_id", "job_name", "user", "partition", "state", "reason")
JOB_INFO = _ROWS.gauge("pyrometer_slurm_job_info",
    "1 for each running job, at most 2,000, with its name; joined by job_id with pyrometer_gpu_job_info.",
    "job_id", "job_name", "user", "partition")
JOB_END = _ROWS.gauge("pyrometer_slurm_job_end_timestamp_seconds",
    "When a job ended or was told to, and how Slurm has it: completed, cancelled, timeout, failed, out_of_memory, "
    "node_fail, ...; the latest 2,000 that squeue still lists (MinJobAge, 5 minutes by default).",
    "job_id", "state")
JOBS = _ROWS.gauge("pyrometer_slurm_jobs",
    "Jobs in the queue by partition (several, with commas, for a job that may start in each) and state.",
    "partition", "state")
NODES = _ROWS.gauge("pyrometer_slurm_nodes", "Nodes by state, each once; idle ones are spare.", "state")
PARTITION_NODES = _ROWS.gauge("pyrometer_slurm_partition_nodes",
    "Nodes by partition and state; a node is counted in each of its partitions.", "partition", "state")
NODE_UNAVAILABLE = _ROWS.gauge("pyrometer_slurm_node_unavailable_info",
    "1 for each node that gets no new job (maintenance, draining, drained, down), with its reason.",
    "node", "state", "reason", "user")
NODE_SINCE = _ROWS.gauge("pyrometer_slurm_node_unavailable_timestamp_seconds",
    "When the reason was set for which the node gets no new job; absent if this release of Slurm has no such time.",
    "node")
ANSWERED = _ROWS.gauge("pyrometer_slurm_answer_timestamp_seconds",
    "When the command (squeue or sinfo) last answered.", "command")
# fmt: on
FAMILIES = tuple(_ROWS)

# A reason is free text by whoever drained the node; a label needs no more than this.
MAX_REASON = 120
# A run is one job, or a chain of a few; an array of thousands that matches the name is counted, not listed.
MAX_LISTED_JOBS = 50
# More than the jobs that a cluster of a thousand nodes of GPUs runs at once.
MAX_NAMED_JOBS = 2000


def queue_samples(queue: Queue, watched: Iterable[WatchedRun]) -> Iterator[Sample | Down]:
    """Return the samples of the queue; of one that could not be read those of the runs that were asked for by name."""
    if queue.unread is None:
        yield from run_samples(queue.jobs, watched)
        yield from job_samples(queue.jobs)
    else:
        yield Down("squeue", queue.unread.reason, f"{queue.unread.detail} (watched runs were asked for by name)")
        yield from run_samples(queue.jobs, (run for run in watched if run.job_name))
    by_job = {end.job_id: end for end in sorted(queue.ends, key=lambda end: end.at)}
    for end in list(by_job.values())[-MAX_NAMED_JOBS:]:
        yield JOB_END.sample(end.at, end.job_id, end.state)


def run_samples(jobs: Sequence[Job], watched: Iterable[WatchedRun]) -> Iterator[Sample]:
    """Return the samples of watched runs; each has every state, 0 included."""
    for run in watched:
        jobs_of_run = run.of(jobs)
        counts = Counter(job.state for job in jobs_of_run)
        for state in job_states.STATES:
            yield RUN_JOBS.sample(counts[state], run.run, state)
        for job in jobs_of_run[:MAX_LISTED_JOBS]:
            reason = job.reason[:MAX_REASON]
            yield RUN_JOB_INFO.sample(1, run.run, job.job_id, job.name, job.user, job.partition, job.state, reason)


def job_samples(jobs: Sequence[Job]) -> Iterator[Sample]:
    """Return the samples of all jobs."""
    for job in [job for job in jobs if job.state == job_states.RUNNING][:MAX_NAMED_JOBS]:
        yield JOB_INFO.sample(1, job.job_id, job.name, job.user, job.partition)
    by_partition = Counter((job.partition, job.state) for job in jobs)
    for partition in sorted({job.partition for job in jobs}):
        for state in job_states.STATES:
            yield JOBS.sample(by_partition[partition, state], partition, state)


def node_samples(nodes: Iterable[Node]) -> Iterator[Sample]:
    """Return the samples of nodes."""
    nodes = list(nodes)
    counts = Counter(node.state for node in nodes)
    for state in node_states.STATES:
        yield NODES.sample(counts[state], state)
    by_partition = Counter((partition, node.state) for node in nodes for partition in node.partitions)
    for partition in sorted({partition for node in nodes for partition in node.partitions}):
        for state in node_states.STATES:
            yield PARTITION_NODES.sample(by_partition[partition, state], partition, state)
    for node in nodes:
        if node.state in UNAVAILABLE:
            yield NODE_UNAVAILABLE.sample(1, node.name, node.state, node.reason[:MAX_REASON], node.user)
            if node.since is not None:
                yield NODE_SINCE.sample(node.since, node.name)
