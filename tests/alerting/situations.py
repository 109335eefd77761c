"""Whole situations of a training run as a real Prometheus stores them, and the diagnosis watched while they go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from alerting_fakes import alert, training_incident

from pyrometer_alerting.diagnosis.diagnostician import is_news, merge_diagnoses, published
from pyrometer_alerting.diagnosis.investigation import investigate
from pyrometer_alerting.model.incident import Diagnosis, Incident
from pyrometer_kit.prometheus import HttpPrometheus, Prometheus
from pyrometer_simulator.stack import find_stack
from pyrometer_simulator.stack.prometheus import holding

BEFORE, AFTER = 1200, 930  # seconds before and after the drop
SCRAPE, BATCH = 15, 3
NODES = tuple(f"gpu-{number:03d}" for number in range(4))
FIRES_AFTER = 20.0

Value = Callable[[float], float]  # of the seconds since the drop


@dataclass
class Situation:
    """A run of 32 GPUs on 4 nodes; series are functions of the seconds since the drop, by (metric, labels)."""

    name: str
    depth: float = 0.7  # of its MFU that remains
    alertname: str = "TrainMfuDropped"
    changed: dict[tuple[str, str], Value] = field(default_factory=dict)
    silent: Mapping[str, float] = field(default_factory=dict)  # node -> since
    racks: Mapping[str, str] = field(default_factory=dict)
    recovers: float | None = None
    falls_again: float | None = None

    def set(self, metric: str, value: Value, **labels: str) -> Situation:
        """Replace the healthy series of this metric with these labels."""
        self.changed[metric, _labels(labels)] = value
        return self

    def lines(self, drop: float) -> Iterator[str]:
        """Yield the samples as OpenMetrics, one family after the other."""
        for metric, (kind, series) in self._families().items():
            family = metric.removesuffix("_total") if kind == "counter" else metric
            yield f"# TYPE {family} {kind}"
            for labels, healthy in series:
                value = self.changed.get((metric, _labels(labels)), healthy)
                full = {"cluster": self.name, **labels}
                if "node" in labels and labels["node"] in self.racks:
                    full["rack"] = self.racks[labels["node"]]
                text = ",".join(f'{name}="{one}"' for name, one in full.items())
                step = BATCH if metric.startswith("pyrometer_train_batch") else SCRAPE
                until = self.silent.get(labels.get("node", ""), AFTER)
                for at in range(-BEFORE, AFTER, step):
                    if at < until:
                        yield f"{metric}{{{text}}} {value(at):.6g} {drop + at}"

    def _families(self) -> dict[str, tuple[str, list[tuple[dict[str, str], Value]]]]:
        gpus = [{"node": node, "gpu": str(gpu)} for node in NODES for gpu in range(8)]
        reasons = ("hw_thermal", "sw_thermal", "hw_power_brake", "clocks_setting", "power_cap")
        ranks = [{**gpu, "rank": str(rank), "attempt": "0", "run": "llama-70b"} for rank, gpu in enumerate(gpus)]
        run = {"run": "llama-70b", "attempt": "0"}
        mine = [{name: rank[name] for name in ("node", "run", "attempt", "rank")} for rank in ranks]
        ports = [{"node": gpu["node"], "device": f"mlx5_{gpu['gpu']}", "port": "1"} for gpu in gpus]
        wait = {"part": "wait"}
        return {
            "DCGM_FI_DEV_SM_CLOCK": ("gauge", [(gpu, lambda _at: 1980.0) for gpu in gpus]),
            "DCGM_FI_DEV_GPU_TEMP": ("gauge", [(gpu, lambda _at: 62.0) for gpu in gpus]),
            "DCGM_FI_DEV_ENFORCED_POWER_LIMIT": ("gauge", [(gpu, lambda _at: 700.0) for gpu in gpus]),
            "pyrometer_gpu_clock_event_seconds_total": (
                "counter",
                [
                    ({**gpu, "reason": reason}, _rate(0.1) if reason == "power_cap" else _rate(0))
                    for gpu in gpus
                    for reason in reasons
                ],
            ),
            "pyrometer_nic_link_down_events_total": ("counter", [(port, lambda _at: 0.0) for port in ports]),
            "pyrometer_train_rank_info": ("gauge", [(rank, lambda _at: 1.0) for rank in ranks]),
            "pyrometer_train_run_info": ("gauge", [({**run, "global_batch_size": "1024"}, lambda _at: 1.0)]),
            "pyrometer_train_step_seconds_total": ("counter", [(rank, _rate(1)) for rank in mine]),
            "pyrometer_train_step_part_seconds_total": (
                "counter",
                [
                    ({**rank, **part}, _rate(share))
                    for rank in mine
                    for part, share in ((wait, 0.3), ({"part": "data"}, 0.02))
                ],
            ),
            "node_pressure_cpu_waiting_seconds_total": ("counter", [({"node": node}, _rate(0.01)) for node in NODES]),
            "pyrometer_train_batch_mfu_ratio": ("gauge", [(run, self._mfu)]),
            "pyrometer_train_batch_step": ("gauge", [(run, lambda at: (at + BEFORE) / BATCH)]),
        }

    def _mfu(self, at: float) -> float:
        noise = 0.002 * ((at * 7919) % 5 - 2)
        low = at >= 0 and (self.recovers is None or at < self.recovers)
        low |= self.falls_again is not None and at >= self.falls_again
        return 0.45 * (self.depth if low else 1.0) + noise


def _labels(labels: Mapping[str, str]) -> str:
    chosen = {name: value for name, value in labels.items() if name not in ("run", "attempt")}
    return ",".join(f"{name}={value}" for name, value in sorted(chosen.items()))


def _rate(share: float) -> Value:
    return lambda at: share * (at + BEFORE)


def grows(share: float, *, since: float = 0.0, until: float = 1e9, before: float = 0.0) -> Value:
    """Return a counter that grows by this share of the time between two times, and by `before` otherwise."""
    return lambda at: before * (at + BEFORE) + (share - before) * max(min(at, until) - since, 0.0)


def becomes(low: float, high: float, *, since: float = 0.0, until: float = 1e9) -> Value:
    """Return a gauge that is `low` between two times."""
    return lambda at: low if since <= at < until else high


def counts(*moments: float) -> Value:
    """Return a counter of these events."""
    return lambda at: float(sum(moment <= at for moment in moments))


@contextmanager
def stored(folder: Path, situations: Sequence[Situation], drop: float) -> Iterator[HttpPrometheus]:
    """Run a real Prometheus that holds all situations, each as a cluster of its own."""
    with holding(find_stack(), folder, *(situation.lines(drop) for situation in situations)) as url:
        asked = HttpPrometheus(url)
        yield asked
        asked.close()


@dataclass
class Watch:
    """The diagnoses of one incident by the seconds since its webhook, and how often its message was edited."""

    diagnoses: dict[float, Diagnosis] = field(default_factory=dict)
    edits: int = 0
    incident: Incident | None = None

    def first(self, seconds: float) -> tuple[str, str]:
        """Return part and cause of the first cause at that time."""
        latest = max(at for at in self.diagnoses if at <= seconds)
        cause = self.diagnoses[latest].causes[0]
        return cause.part, cause.cause

    def named(self) -> list[str]:
        """Return the first parts in the order in which they were named."""
        parts = [diagnosis.causes[0].part for _at, diagnosis in sorted(self.diagnoses.items())]
        return [part for index, part in enumerate(parts) if index == 0 or part != parts[index - 1]]


def looks(until: float = 900.0) -> list[float]:
    """Return the times of the service's looks: at once, a second later, each 10 s, later each 30 s."""
    return [0.0, 1.0, *range(11, 121, 10), *range(150, round(until) + 1, 30)]


def watch(
    prometheus: Prometheus,
    situation: Situation,
    drop: float,
    *,
    until: float = 900.0,
    others: Callable[[float], list[Incident]] = lambda _now: [],
) -> Watch:
    """Diagnose the situation's incident over and over, as the service does."""
    fired = drop + FIRES_AFTER
    member = alert(situation.alertname, labels={"run": "llama-70b", "component": "train", "cluster": situation.name})
    incident = training_incident(
        cluster=situation.name,
        alertname=situation.alertname,
        members=(replace(member, starts_at=fired),),
        started_at=fired,
        received_at=fired,
    )
    seen = Watch()
    for seconds in looks(until):
        incident = look(prometheus, incident, fired + seconds, seen, others)
        seen.diagnoses[seconds] = incident.diagnosis or Diagnosis(fired + seconds)
    seen.incident = incident
    return seen


def look(
    prometheus: Prometheus,
    incident: Incident,
    now: float,
    seen: Watch,
    others: Callable[[float], list[Incident]] = lambda _now: [],
) -> Incident:
    """Diagnose the incident once, count an edit if it is news, and return it with its diagnosis."""
    found = merge_diagnoses(incident.diagnosis, investigate(prometheus, incident, others(now), now))
    news = is_news(incident.diagnosis, found)
    seen.edits += news
    return replace(incident, diagnosis=published(incident.diagnosis, found, news=news))
