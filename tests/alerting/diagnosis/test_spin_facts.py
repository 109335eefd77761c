"""GPUs that spin at low power wait in a collective; the one that doesn't has the rank that they wait for."""

from __future__ import annotations

from alerting_fakes import START, FakePrometheus

from pyrometer_alerting.diagnosis.evidence import PROVIDERS
from pyrometer_alerting.diagnosis.look import Look, Questions
from pyrometer_alerting.diagnosis.spin_facts import idle_beside_spinning
from pyrometer_alerting.diagnosis.weights import KINDS
from pyrometer_alerting.model.fact import Roster
from pyrometer_alerting.model.incident import Alert, Incident
from pyrometer_kit.prometheus import Series

ROSTER = Roster("0", {"gpu-001": tuple(map(str, range(8)))})


def look(utils: dict[int, float], powers: dict[int, float], alert: str = "TrainStalled") -> Look:
    """Look at a node with eight GPUs, which spin unless said otherwise."""
    prometheus = FakePrometheus()
    for pattern, values, usual in (("GPU_UTIL", utils, 100.0), ("POWER_USAGE", powers, 0.21)):
        prometheus.on(
            pattern,
            [
                Series({"node": "gpu-001", "gpu": str(gpu)}, ((START, values.get(gpu, usual)),))
                for gpu in range(8)
            ],
        )  # fmt: skip
    member = Alert(f"{alert}-1", firing=True, labels={"alertname": alert}, annotations={}, starts_at=START)
    incident = Incident("i", "k", "c1", alert, "llama", "critical", "train", START, START, members=(member,))
    found = idle_beside_spinning(Questions(prometheus, incident, START, roster=ROSTER))
    assert found.kinds <= KINDS.keys()
    return found


def test_the_gpu_that_idles_while_seven_spin_is_named() -> None:
    (fact,) = look({5: 0.0}, {5: 0.12}).facts
    assert fact.labels == {"node": "gpu-001", "gpu": "5"}
    assert fact.detail == (
        "7 of the run's 8 GPUs spin at full utilisation and 20 % of their power limit, as in a collective; "
        "this one is at 0 % utilisation and 10 %"
    )


def test_a_gpu_that_still_computes_is_named_by_its_power() -> None:
    (fact,) = look({}, {2: 0.93}).facts
    assert fact.labels["gpu"] == "2"


def test_nobody_is_named_where_all_spin_most_compute_or_the_run_makes_steps() -> None:
    assert look({}, {}).facts == ()
    assert look({}, dict.fromkeys(range(1, 8), 0.9)).facts == ()
    assert look(dict.fromkeys(range(5), 0.0), {}).facts == ()
    assert look({5: 0.0}, {5: 0.12}, alert="TrainMfuDropped").facts == ()


def test_the_diagnosis_asks_for_it() -> None:
    assert PROVIDERS["idle_beside_spinning"] is idle_beside_spinning
