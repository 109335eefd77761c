"""The metrics of a job's communicators, from NCCL's RAS socket.

A sample line: ``pyrometer_nccl_communicator_ranks{run="llama",job_id="4711",comm="0x3c6ef372",state="ready"} 32``
"""

from __future__ import annotations

from pyrometer_exporters.framework.metrics import Families

# fmt: off
FAMILIES = Families()
JOB = ("run", "job_id")
COMMUNICATOR_RANKS = FAMILIES.gauge("pyrometer_nccl_communicator_ranks",
    "Ranks of a communicator by state (ready, initialising, error, missing, unresponsive, dead), from NCCL RAS, "
    "queried by one exporter per job; those beyond 64 communicators are summed up as comm=others.",
    *JOB, "comm", "state")
COMMUNICATOR_COLLECTIVES = FAMILIES.counter("pyrometer_nccl_communicator_collectives_total",
    "Collectives launched by the rank that has launched the least (bound=min) and the most (bound=max), from NCCL "
    "RAS; sends and receives are not counted.", *JOB, "comm", "collective", "bound")
LAST_LAUNCH = FAMILIES.gauge("pyrometer_nccl_communicator_last_launch_timestamp_seconds",
    "When a count of the communicator last rose, from NCCL RAS.", *JOB, "comm")
STANDSTILL = FAMILIES.gauge("pyrometer_nccl_standstill_seconds",
    "For how long no count of the job has risen, in any communicator and on any rank, from NCCL RAS; 0 while counts "
    "rise.", *JOB)
LONGEST_STANDSTILL = FAMILIES.gauge("pyrometer_nccl_longest_standstill_seconds",
    "Longest time for which no count of the job rose before they rose again: a checkpoint, a validation.", *JOB)
RANK_BEHIND = FAMILIES.gauge("pyrometer_nccl_rank_behind",
    "Collectives, at least 1, by which a rank that the others wait for is behind, from NCCL RAS; only while no count "
    "rises or the rank doesn't answer. state is behind, not_ready, missing, unresponsive or dead; host is the address"
    " of pyrometer_node_address_info; rank is the job's where known; certain=no where it may be another rank.",
    *JOB, "comm", "rank", "host", "gpu", "state", "certain")
WAITING_RANKS = FAMILIES.gauge("pyrometer_nccl_waiting_ranks",
    "Ranks of the communicator that wait for those in pyrometer_nccl_rank_behind.", *JOB, "comm")
COMMUNICATORS = FAMILIES.gauge("pyrometer_nccl_communicators",
    "Communicators of the job; 0 while its ranks are still connecting.", *JOB)
JOB_INFO = FAMILIES.gauge("pyrometer_nccl_job_info",
    "1; the job's version of NCCL, ranks and nodes. format is json, or text before NCCL 2.28.7: then only ranks that "
    "differ from the others are known.", *JOB, "nccl_version", "ranks", "nodes", "format")
RAS_UP = FAMILIES.gauge("pyrometer_nccl_ras_up",
    "1 if the job at the address answered this node's latest question, 0 if the listener there did not; absent where "
    "nothing listens, and where another node queries the job.", "address")
ADDRESS_INFO = FAMILIES.gauge("pyrometer_node_address_info",
    "1; an address of this node, which joins the hosts that NCCL names to nodes.", "address")
