"""The report of NCCL RAS on a job, as text or JSON, in the words of NCCL 2.24 to 2.30 (src/ras/client_support.cc)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

READY, IN_PROGRESS = 0, 7
JSON_SINCE = (2, 28, 7)
COUNTS_BY_KIND_SINCE = (2, 26)
_STATUS = ("NOCOMM", "INIT", "RUNNING", "FINALIZE", "ABORT")
_ERROR = {
    1: "Unhandled CUDA error", 2: "System error", 3: "Internal error", 4: "Invalid argument", 5: "Invalid usage",
    6: "Remote process error",
}  # fmt: skip


@dataclass(frozen=True)
class Process:
    """A process of the job with one GPU; ``host`` is the address that NCCL connects to."""

    host: str
    pid: int
    gpu: int


@dataclass
class Member:
    """A rank of a communicator that answered."""

    rank: int
    process: Process
    counts: Mapping[str, int]
    init_state: int = READY
    async_error: int = READY
    finalize: bool = False
    abort: bool = False

    @property
    def status(self) -> int:
        """Return the index of its status in NCCL's list."""
        if self.abort:
            return 4
        return 3 if self.finalize else 2 if self.init_state == READY else 1


@dataclass
class Missing:
    """A rank of a communicator that gave no counts."""

    rank: int
    process: Process
    unresponsive: bool = True
    dead: bool = False


@dataclass
class Communicator:
    """A communicator as its job's RAS threads know it."""

    hash: int
    size: int
    ranks: list[Member]
    missing: list[Missing] = field(default_factory=list)

    @property
    def nodes(self) -> Counter[str]:
        """Return the number of ranks that answered, by host."""
        return Counter(member.process.host for member in self.ranks)

    @property
    def mismatches(self) -> bool:
        """Return whether its ranks differ in status or in any count."""
        return (
            len({member.status for member in self.ranks}) > 1
            or any(not one.unresponsive for one in self.missing)
            or any(self.counts(kind).total() and len(self.counts(kind)) > 1 for kind in self.kinds)
        )

    @property
    def kinds(self) -> Sequence[str]:
        """Return the kinds of collectives that are counted."""
        return list(self.ranks[0].counts) if self.ranks else []

    def counts(self, kind: str) -> Counter[int]:
        """Return the number of ranks by their count of a kind; of all kinds together where it is empty."""
        return Counter(count_of(member, kind) for member in self.ranks)

    @property
    def errors(self) -> str:
        """Return the word for its errors, as in the table of groups."""
        bad = any(
            member.init_state not in (READY, IN_PROGRESS) or member.async_error not in (READY, IN_PROGRESS)
            for member in self.ranks
        )
        found = {
            "INCOMPLETE": any(one.unresponsive for one in self.missing),
            "ERROR": bad,
            "MISMATCH": self.mismatches,
        }
        return ",".join(word for word, is_so in found.items() if is_so) or "OK"


@dataclass
class Job:
    """The processes of a job, and the communicators that they have told RAS about."""

    processes: list[Process]
    communicators: list[Communicator]
    version: tuple[int, int, int] = (2, 30, 7)
    seconds: float = 0.0
    timeouts: int = 0

    @property
    def unanswered(self) -> list[tuple[Process, bool]]:
        """Return the processes that gave no answer, each with whether it is considered dead."""
        found = {one.process: one.dead for group in self.communicators for one in group.missing if one.unresponsive}
        return sorted(found.items(), key=lambda item: (item[0].host, item[0].pid))


def count_of(member: Member, kind: str) -> int:
    """Return a rank's count of a kind, of all together where the kind is empty."""
    return member.counts[kind] if kind else sum(member.counts.values())


def as_json(job: Job) -> Iterator[str]:
    """Yield the report in JSON, piece by piece, in the layout of 2.28.7 and newer."""
    yield (
        f'{{\n  "nccl_version": "{".".join(map(str, job.version))}",\n  "cuda_runtime_version": 13000,\n'
        f'  "cuda_driver_version": 13000,\n  "timestamp": "{time.strftime("%Y-%m-%d %H:%M:%S")}",\n'
        f'  "communicators_count": {len(job.communicators)},\n  "communicators": [\n'
    )
    for number, group in enumerate(job.communicators):
        yield ",\n" * (number > 0) + (
            f'    {{\n      "hash": "0x{group.hash:x}",\n'
            f'      "secondary_hash": "0x{group.hash ^ 0xB7E7:x}:0x{group.hash ^ 0x8242:x}",\n'
            f'      "size": {group.size},\n      "ranks_count": {len(group.ranks)},\n'
            f'      "missing_ranks_count": {len(group.missing)},\n      "ranks": [\n'
        )
        yield ",\n".join(_json_rank(member) for member in group.ranks)
        yield '\n      ],\n      "missing_ranks": [\n'
        yield ",\n".join(_json_missing(one) for one in group.missing)
        yield "\n      ]\n    }"
    yield f'\n  ],\n  "ras": {{\n    "collection_time_sec": {job.seconds:.3f},\n    "timeouts_count": {job.timeouts}\n'
    yield "  }\n}\n"


def _json_rank(member: Member) -> str:
    flags = {"finalize_called": member.finalize, "destroy_flag": False, "abort_flag": member.abort}
    status = [f'            "init_state": {member.init_state}', f'            "async_error": {member.async_error}']
    status += [f'            "{name}": {str(value).lower()}' for name, value in flags.items()]
    counts = [f'            "{kind}": {count}' for kind, count in member.counts.items()]
    return (
        _json_identity(member.rank, member.process)
        + '          "status": {\n' + ",\n".join(status) + "\n          },\n"
        + '          "collective_counts": {\n' + ",\n".join(counts) + "\n          }\n        }"
    )  # fmt: skip


def _json_missing(one: Missing) -> str:
    return _json_identity(one.rank, one.process) + (
        f'          "status": {{\n            "unresponsive": {str(one.unresponsive).lower()},\n'
        f'            "considered_dead": {str(one.dead).lower()}\n          }}\n        }}'
    )


def _json_identity(rank: int, process: Process) -> str:
    return (
        f'        {{\n          "rank": {rank},\n          "host": "{process.host}",\n          "pid": {process.pid},\n'
        f'          "cuda_dev": {process.gpu},\n          "nvml_dev": {process.gpu},\n'
    )


def as_text(job: Job, *, verbose: bool) -> Iterator[str]:
    """Yield the report in text, piece by piece."""
    yield f"NCCL version {'.'.join(map(str, job.version))} compiled with CUDA 13.0\n"
    yield "CUDA runtime version 13000, driver version 13000\n\n"
    yield from _summary(job)
    yield f"\nCommunicators... ({job.seconds:.2f}s)\n=============\n\n"
    groups = _groups(job)
    yield from _table(groups)
    yield "\nErrors\n======\n\n"
    yield from _lost_processes(job, verbose=verbose)
    for name, one in _named(groups):
        yield from _incomplete(name, one, verbose=verbose)
        yield from _failed(name, one)
    yield "Warnings\n========\n\n"
    if job.timeouts:
        plural = "s" * (job.timeouts > 1)
        yield f"TIMEOUT\n  Encountered {job.timeouts} communication timeout{plural} "
        yield "while gathering communicator data\n\n"
    for name, one in _named(groups):
        if one.mismatches:
            yield f"{name} MISMATCH\n"
            yield from _different_status(one, verbose=verbose)
            yield from _different_counts(one, job.version, verbose=verbose)


def _summary(job: Job) -> Iterator[str]:
    hosts = Counter(process.host for process in job.processes)
    yield "Job summary\n===========\n\n"
    if len(set(hosts.values())) <= 1:
        yield "  Nodes  Processes         GPUs  Processes     GPUs\n"
        yield "(total)   per node  per process    (total)  (total)\n"
        each = next(iter(hosts.values()), 0)
        yield f"{len(hosts):7d}  {each:9d}  {1:11d}  {len(job.processes):9d}  {len(job.processes):7d}\n"
        return
    yield "  Nodes  Processes         GPUs\n          per node  per process\n"
    for processes, nodes in Counter(hosts.values()).most_common():
        yield f"{nodes:7d}  {processes:9d}  {1:11d}\n"
    yield "\n  Nodes  Processes         GPUs\n(total)    (total)      (total)\n"
    yield f"{len(hosts):7d}  {len(job.processes):9d}  {len(job.processes):11d}\n"


Group = list[Communicator]


def _groups(job: Job) -> list[Group]:
    """Return the communicators, largest first, those of equal size, nodes, status and errors together."""
    found: dict[tuple[int, int, int, str], Group] = {}
    for one in job.communicators:
        status = max((member.status for member in one.ranks), default=0)
        found.setdefault((one.size, len(one.nodes), status, one.errors), []).append(one)
    return [found[key] for key in sorted(found, key=lambda key: (-key[0], -key[1], -key[2], key[3]))]


def _table(groups: Sequence[Group]) -> Iterator[str]:
    if not groups:
        yield "No communicator data collected!\n"
        return
    yield "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors\n"
    yield "    #  in group  per comm  per node  per comm  in group\n"
    for number, group in enumerate(groups):
        each = sorted({count for one in group for count in one.nodes.values()})
        per_node = str(each[0]) if len(each) == 1 else f"{each[0]}-{each[-1]}" if each else "0"
        ranks = len({member.process for one in group for member in one.ranks})
        status = _STATUS[max((member.status for one in group for member in one.ranks), default=0)]
        first = group[0]
        yield (
            f"{number:5d}  {len(group):8d}  {len(first.nodes):8d}  {per_node:>8}  {first.size:8d}  {ranks:8d}"
            f"  {status:>8}  {first.errors:>6}\n"
        )


def _named(groups: Iterable[Group]) -> Iterator[tuple[str, Communicator]]:
    for number, group in enumerate(groups):
        for place, one in enumerate(group):
            yield f"#{number}-{place} ({one.hash:016x})", one


def _lost_processes(job: Job, *, verbose: bool) -> Iterator[str]:
    for heading, dead in (("INCOMPLETE", False), ("DEAD", True)):
        lost = [process for process, is_dead in job.unanswered if is_dead == dead]
        if lost:
            plural = len(lost) > 1
            noun = "processes" if plural else "process"
            if dead:
                verb = "are" if plural else "is"
                yield f"DEAD\n  {len(lost)} job {noun} {verb} considered dead (unreachable via the RAS network)\n"
            else:
                yield f"{heading}\n  Missing communicator data from {len(lost)} job {noun}\n"
            if _is_outlier(len(lost), verbose=verbose):
                for one in lost:
                    yield f"  Process {one.pid} on node {one.host} managing GPU {one.gpu}\n"
            yield "\n"


def _incomplete(name: str, one: Communicator, *, verbose: bool) -> Iterator[str]:
    lost = [missing for missing in one.missing if missing.unresponsive]
    if lost:
        yield f"{name} INCOMPLETE\n  Missing communicator data from {len(lost)} rank{'s' * (len(lost) > 1)}\n"
        if _is_outlier(len(lost), verbose=verbose):
            for missing in lost:
                yield f"  {_rank(missing.rank)} -- {_managed(missing.process)}\n"
        yield "\n"


def _failed(name: str, one: Communicator) -> Iterator[str]:
    for title, attribute in (("Initialization", "init_state"), ("Asynchronous", "async_error")):
        failed = [member for member in one.ranks if getattr(member, attribute) not in (READY, IN_PROGRESS)]
        if failed:
            plural = "s" * (len(failed) > 1)
            yield f"{name} ERROR\n  {title} error{plural} on {len(failed)} rank{plural}\n"
            for member in failed:
                word = _ERROR.get(getattr(member, attribute), "Unexpected error")
                yield f"  {_rank(member.rank)} reported {word} -- {_managed(member.process)}\n"
            yield "\n"


def _different_status(one: Communicator, *, verbose: bool) -> Iterator[str]:
    entries = [(member.status, member.rank, member.process) for member in one.ranks]
    entries += [(0, missing.rank, missing.process) for missing in one.missing if not missing.unresponsive]
    if len({status for status, _, _ in entries}) > 1:
        yield "  Communicator ranks have different status\n"
        for status, number in Counter(status for status, _, _ in entries).most_common():
            if number > 1:
                yield f"  {number} ranks have status {_STATUS[status]}\n"
            if _is_outlier(number, one.size, verbose=verbose):
                for _, rank, process in sorted((e for e in entries if e[0] == status), key=lambda entry: entry[1]):
                    said = f" has status {_STATUS[status]}" if number == 1 else ""
                    yield f"  {_rank(rank)}{said} -- {_managed(process)}\n"


def _different_counts(one: Communicator, version: tuple[int, int, int], *, verbose: bool) -> Iterator[str]:
    for kind in one.kinds if version[:2] >= COUNTS_BY_KIND_SINCE else [""]:
        counts = one.counts(kind)
        if len(counts) > 1:
            yield f"  Communicator ranks have different {kind or 'collective'} operation counts\n"
            for count, number in sorted(counts.items(), key=lambda item: (-item[1], -item[0])):
                said = f"launched up to operation {count}" if count or not kind else "not launched any operations"
                if number > 1:
                    yield f"  {number} ranks have {said}\n"
                if _is_outlier(number, one.size, verbose=verbose):
                    for member in sorted(one.ranks, key=lambda member: member.rank):
                        if count_of(member, kind) == count:
                            alone = f" has {said}" if number == 1 else ""
                            yield f"  {_rank(member.rank)}{alone} -- {_managed(member.process)}\n"
            yield "\n"


def _is_outlier(count: int, total: int | None = None, *, verbose: bool) -> bool:
    if count == 1:
        return True
    if verbose:
        return total is None or count < total * 0.5
    return count <= 10 and (total is None or count <= total * 0.25)


def _rank(rank: int) -> str:
    return f"Rank {rank}"


def _managed(process: Process) -> str:
    return f"GPU {process.gpu} managed by process {process.pid} on node {process.host}"
