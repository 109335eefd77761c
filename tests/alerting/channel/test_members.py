from __future__ import annotations

from alerting_fakes import START, alert

from pyrometer_alerting.channel.members import members_text
from pyrometer_alerting.incidents.lifecycle import fold
from pyrometer_alerting.model.incident import Alert


def throttled(severity: str, *, firing: bool = True, gpu: str = "0", at: float = START) -> Alert:
    labels = {"node": "gpu-044", "gpu": gpu, "severity": severity}
    return alert("GpuThrottledThermal", fingerprint=severity + gpu, firing=firing, labels=labels, starts_at=at)


def text_of(*members: Alert) -> str:
    return members_text(fold(None, list(members), 0, START + 60).incident)


def test_a_warning_that_became_critical_is_listed_once_and_has_not_ended() -> None:
    worse = throttled("critical", at=START + 30)
    shown = text_of(throttled("warning", firing=False), worse, throttled("warning", gpu="1"))
    assert shown == "*2 of 2 firing*\n\u2022 gpu-044 GPU 0\n\u2022 gpu-044 GPU 1"


def test_one_that_ended_under_both_severities_is_listed_once_as_ended() -> None:
    over = throttled("warning", firing=False), throttled("critical", firing=False, at=START + 30)
    shown = text_of(*over, throttled("warning", gpu="1"))
    assert shown == "*1 of 2 firing*\n\u2022 gpu-044 GPU 1\n\u2713 gpu-044 GPU 0"


def test_another_alert_on_the_same_part_is_listed_beside_it() -> None:
    lost = alert("GpuLost", fingerprint="x", labels={"node": "gpu-044", "gpu": "0", "severity": "critical"})
    shown = text_of(throttled("warning", firing=False), lost)
    assert shown == "*1 of 2 firing*\n\u2022 gpu-044 GPU 0: GpuLost\n\u2713 gpu-044 GPU 0: GpuThrottledThermal"
