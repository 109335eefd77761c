"""Metrics of the services on the monitoring host: the alerting service's own, and the cluster exporter's."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from pyrometer_simulator import vocabulary
from pyrometer_simulator.fleet.plan import Plan, Run
from pyrometer_simulator.fleet.series import Family, Values, counter, counter_with_turn, event_counter, family, flatten
from pyrometer_simulator.fleet.training_metrics import CHECKPOINT_SECONDS
from pyrometer_simulator.vocabulary import text

# Shares of a run's time in the goodput ledger.
_LEDGER = {
    "useful": 0.93,
    "rework": 0.015,
    "checkpoint": 0.025,
    "eval": 0.01,
    "init": 0.008,
    "down": 0.01,
    "other": 0.002,
}
_STANDSTILL = {state: float(state == "down") for state in _LEDGER}

_ALERTMANAGER = {
    "alertmanager_silences": {"active": 1.0, "pending": 0.0, "expired": 4.0},
    "alertmanager_alerts": {"active": 6.0, "suppressed": 1.0},
}


def service_families(plan: Plan, names: Sequence[str] = ()) -> list[Family]:
    """Return the families of the services that exist once per cluster; ``names`` replace the plan's nodes."""
    fabric = _fabric(plan, names or plan.names())
    return flatten(
        _alerting(plan),
        _incidents(plan),
        _signatures(plan),
        _alertmanager(plan),
        fabric,
        _slurm(plan),
        _ufm(plan),
        _ledger(plan),
    )


def _service(plan: Plan) -> str:
    return f'cluster="{plan.cluster}",job="alerting",instance="monitor:9937"'


def _alerting(plan: Plan) -> Iterator[Family]:
    where = _service(plan)
    for name in ("outbox_depth", "outbox_dead", "outbox_oldest_age_seconds", "incidents_open"):
        yield family(f"pyrometer_alerting_{name}", [where], np.zeros(1))
    yield family("pyrometer_alerting_leader", [f'{where},storage="sqlite"'], np.ones(1))
    yield family(
        "pyrometer_alerting_watchdog_last_seen_timestamp_seconds", [where], lambda at: np.array([at - at % 60])
    )
    calls = [f'{where},method="chat.update",outcome="{outcome}"' for outcome in ("ok", "rate_limited")]
    yield family("pyrometer_alerting_slack_calls_total", calls, counter(np.array([0.02, 0.0]), 0))
    yield family("pyrometer_alerting_webhook_to_slack_seconds_sum", [where], counter(np.array([0.03])))
    yield family("pyrometer_alerting_webhook_to_slack_seconds_count", [where], counter(np.array([0.02])))
    yield from _policy(plan)


def _policy(plan: Plan) -> Iterator[Family]:
    """Yield what the policy says: one node is drained, and a limit holds another one back."""
    where = _service(plan)
    yield family("pyrometer_policy_mode_info", [f'{where},mode="on"'], np.ones(1), slow=True)
    yield family("pyrometer_policy_last_look_timestamp_seconds", [where], lambda at: np.array([at - at % 15]))
    held = [f'{where},limit="{limit}"' for limit in ("per_hour", "percent")]
    yield family("pyrometer_policy_nodes_held_back", held, np.array([0.0, 1.0]), slow=True)
    kinds = (("drain", "done"), ("return", "done"), ("ask", "asked"))
    actions = [f'{where},action="{kind}",result="{result}"' for kind, result in kinds]
    yield family("pyrometer_policy_actions_total", actions, np.array([3.0, 2.0, 1.0]), slow=True)
    if plan.faults.lost:
        out = f'{where},node="{plan.faults.lost[0]}",rule="alert GpuLost",reason="pyrometer: alert GpuLost"'
        yield family("pyrometer_policy_node_since_timestamp_seconds", [out], np.full(1, plan.faults.since), slow=True)


def _incidents(plan: Plan) -> Iterator[Family]:
    """Yield the open incident of each run that a planted fault slows or stops, as the alerting service exports it."""
    where, since = f'cluster="{plan.cluster}"', plan.faults.since
    url = "http://127.0.0.1:9937"
    yield family("pyrometer_alerting_page_info", [f'{_service(plan)},url="{url}"'], np.ones(1), slow=True)
    found = [(run, *blamed) for run in plan.runs() if (blamed := _blamed(plan, run)) is not None]
    own = [
        f'{where},id="{run.name}",alert="{alert}",run="{run.name}",part="{node} GPU {gpu}",cause="{cause}"'
        for run, alert, node, gpu, cause in found
    ]
    more = [
        f'severity="critical",node="{node}",gpu="{gpu}",confidence="high",acknowledged="",link="{url}/#{run.name}"'
        for run, _, node, gpu, _ in found
    ]
    if found:
        labels = [f"{left},{right}" for left, right in zip(own, more, strict=True)]
        yield family("pyrometer_incident_start_timestamp_seconds", labels, np.full(len(found), since))
        gpus = np.array([0.1 * run.nodes * plan.gpus for run, *_ in found])
        yield family("pyrometer_incident_lost_gpu_hours", own, lambda at: gpus * max(at - since, 0.0) / 3600)


def _blamed(plan: Plan, run: Run) -> tuple[str, str, int, str] | None:
    """Return the alert, the node, the GPU and the cause that a diagnosis finds for a run in trouble."""
    faults = plan.faults
    if faults.lost is not None and plan.stopped(run) < math.inf:
        return "TrainStalled", *faults.lost, "the GPU fell off the bus"
    if faults.hot is not None and plan.rank(run, faults.hot) is not None:
        return "TrainMfuDropped", *faults.hot, "throttled by heat"
    slow = plan.slowest(run)
    if slow is None:
        return None
    node = plan.names()[run.first + slow // plan.gpus]
    return "TrainStraggler", node, slow % plan.gpus, "slower than its stage"


def _signatures(plan: Plan) -> Iterator[Family]:
    """Yield the signature of each run's curve: a run with a slow rank steps down."""
    for run in plan.runs():
        where = f'cluster="{plan.cluster}",{run.labels}'
        labels = [f'{where},signature="{signature}"' for signature in ("steady", "step_down")]
        dragged = plan.slowest(run) is not None
        yield family("pyrometer_run_signature", labels, np.array([0.0, 0.86] if dragged else [0.97, 0.0]), slow=True)


def _alertmanager(plan: Plan) -> Iterator[Family]:
    """Yield one active silence and the alert that it suppresses."""
    where = f'cluster="{plan.cluster}",job="alertmanager",instance="monitor:9093"'
    for name, states in _ALERTMANAGER.items():
        labels = [f'{where},state="{state}"' for state in states]
        yield family(name, labels, np.array([*states.values()]), slow=True)


def _fabric(plan: Plan, names: Sequence[str]) -> Iterator[Family]:
    """Yield the switch of each port: one leaf per rail and 32 nodes."""
    where = _cluster_exporter(plan)
    labels = [
        f"{where},{text(vocabulary.fabric_port(name, port, f'leaf-{port}-{node // 32:02d}', str(node % 32 + 1)))}"
        for node, name in enumerate(names)
        for port in range(plan.ports)
    ]
    yield family("pyrometer_fabric_port_info", labels, np.ones(len(labels)), slow=True)


def _slurm(plan: Plan) -> Iterator[Family]:
    drained = [plan.faults.lost[0]] if plan.faults.lost else []
    states = {"idle": plan.idle, "allocated": plan.nodes - plan.idle - len(drained), "draining": len(drained)}
    labels = [f'{_cluster_exporter(plan)},state="{state}"' for state in states]
    yield family("pyrometer_slurm_nodes", labels, np.array([float(count) for count in states.values()]), slow=True)
    jobs = [
        f'{_cluster_exporter(plan)},{run.labels},job_name="{run.name}",user="ada",'
        'partition="gpu",state="RUNNING",reason=""'
        for run in plan.runs()
    ]
    yield family("pyrometer_slurm_run_job_info", jobs, np.ones(len(jobs)), slow=True)
    answers = [f'{_cluster_exporter(plan)},command="{command}"' for command in ("squeue", "sinfo")]
    yield family("pyrometer_slurm_answer_timestamp_seconds", answers, lambda at: np.array([at - 5, at - 5]))
    queue = [f'{_cluster_exporter(plan)},partition="gpu",state="{state}"' for state in ("RUNNING", "PENDING")]
    yield family("pyrometer_slurm_jobs", queue, np.array([float(len(jobs)), 3.0]), slow=True)
    unavailable = [(plan.faults.dead, "drained", "no answer, under repair", "ada")] if plan.faults.dead else []
    unavailable += [(node, "draining", "GPU fell off the bus", "ops") for node in drained]
    where = [f'{_cluster_exporter(plan)},node="{node}"' for node, *_ in unavailable]
    why = [
        f'{each},state="{state}",reason="{reason}",user="{user}"'
        for each, (_, state, reason, user) in zip(where, unavailable, strict=True)
    ]
    yield family("pyrometer_slurm_node_unavailable_info", why, np.ones(len(why)), slow=True)
    since = np.full(len(where), plan.faults.since)
    yield family("pyrometer_slurm_node_unavailable_timestamp_seconds", where, since, slow=True)


def _ufm(plan: Plan) -> Iterator[Family]:
    """Yield the events of a link that is lost again and again."""
    where, since = _cluster_exporter(plan), plan.faults.since
    yield family("pyrometer_ufm_log_unread_bytes", [where], np.zeros(1), slow=True)
    leaves = [f"leaf-{port}-{group:02d}" for port in range(plan.ports) for group in range((plan.nodes + 31) // 32)]
    chips = [f'{where},switch="{leaf}",sensor="asic"' for leaf in leaves]
    yield family("pyrometer_ufm_switch_temperature_celsius", chips, 58.0 + np.arange(float(len(leaves))) % 7, slow=True)
    if plan.faults.flapping is not None:
        node, port = plan.faults.flapping
        place = f'node="{node}",device="mlx5_{port}",port="1",switch="leaf-{port}-00",switch_port="1"'
        event = f'{where},event="link_down",event_id="329",reason="",{place}'
        yield family("pyrometer_ufm_port_events_total", [event], event_counter(np.array([1 / 120]), since))
        cable = f'{where},event="link_down",event_id="329",cable="MT2231VS01234"'
        yield family("pyrometer_ufm_cable_events_total", [cable], event_counter(np.array([1 / 120]), since))


def _ledger(plan: Plan) -> Iterator[Family]:
    for run in plan.runs():
        labels = [f'{_cluster_exporter(plan)},{run.labels},state="{state}"' for state in _LEDGER]
        moving, still = (np.array([*shares.values()]) for shares in (_LEDGER, _STANDSTILL))
        stopped = plan.stopped(run)
        yield family("pyrometer_run_seconds_total", labels, counter_with_turn(moving, still, stopped), slow=True)
        own = [f"{_cluster_exporter(plan)},{run.labels}"]
        ends = [f'{own[0]},basis="elapsed"']
        yield family("pyrometer_run_estimated_end_timestamp_seconds", ends, lambda at: np.array([at + 9 * 86400.0]))
        yield family("pyrometer_run_unsaved_seconds", own, _unsaved(stopped))
        yield family("pyrometer_run_checkpoint_interval_seconds", own, np.array([float(CHECKPOINT_SECONDS)]), slow=True)
        yield family("pyrometer_run_last_checkpoint_timestamp_seconds", own, _last_checkpoint(stopped))


def _last_checkpoint(stopped: float) -> Values:
    return lambda at: np.array([min(at, stopped) // CHECKPOINT_SECONDS * CHECKPOINT_SECONDS])


def _unsaved(stopped: float) -> Values:
    """Return the training time since the last checkpoint; it stays constant in a stopped run."""
    return lambda at: np.array([min(at, stopped) % CHECKPOINT_SECONDS])


def _cluster_exporter(plan: Plan) -> str:
    return f'cluster="{plan.cluster}",job="cluster",instance="monitor:9936"'
