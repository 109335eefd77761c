from __future__ import annotations

from dataclasses import replace

import pytest
from alerting_fakes import START, alert, training_incident

from pyrometer_alerting.incidents.lifecycle import MAX_ENDED_MEMBERS, REOPEN_SECONDS, fold, is_stale, key_of
from pyrometer_alerting.model import incident as model
from pyrometer_alerting.model.incident import Alert, Cause, Diagnosis, Incident, part_of


def test_an_incident_opens_grows_and_resolves_with_its_last_member() -> None:
    one, two = alert(fingerprint="1"), alert(fingerprint="2", labels={"gpu": "1"})
    opened = fold(None, [one], 0, START)
    grown = fold(opened.incident, [one, two], 0, START + 5)
    assert (opened.events, grown.events) == (("opened",), ("grown",))
    still = fold(grown.incident, [replace(one, firing=False, ends_at=START + 8)], 0, START + 9)
    assert still.incident.firing
    assert still.events == ()
    ended = fold(still.incident, [replace(two, firing=False, ends_at=START + 20)], 0, START + 21)
    assert ended.events == ("resolved",)
    assert ended.incident.resolved_at == START + 20


def test_absent_is_not_resolved() -> None:
    opened = fold(None, [alert(fingerprint="1"), alert(fingerprint="2")], 0, START).incident
    assert len(fold(opened, [alert(fingerprint="1")], 0, START).incident.members) == 2


def test_an_incident_that_never_ends_does_not_grow_for_ever() -> None:
    incident = fold(None, [alert(fingerprint="always")], 0, START).incident
    ended = [alert(fingerprint=str(n), firing=False, ends_at=START + 60 * n) for n in range(MAX_ENDED_MEMBERS + 50)]
    members = fold(incident, ended, 0, START + 60 * len(ended)).incident.members
    assert len(members) == MAX_ENDED_MEMBERS + 1
    assert members[0].firing
    assert members[1].fingerprint == "50"  # the oldest went


def test_what_ended_within_half_an_hour_is_all_kept() -> None:
    """Keep thousands of GPUs that recover together, so that the message counts all of them."""
    many = MAX_ENDED_MEMBERS + 50
    opened = fold(None, [alert(fingerprint=str(n)) for n in range(many)], 0, START).incident
    first = [alert(fingerprint=str(n), firing=False, ends_at=START) for n in range(50)]
    early = fold(opened, first, 0, START + 1).incident
    later = [alert(fingerprint=str(n), firing=False, ends_at=START + REOPEN_SECONDS) for n in range(50, many)]
    assert len(fold(early, later, 0, START + REOPEN_SECONDS).incident.members) == many
    later = [replace(each, ends_at=START + REOPEN_SECONDS + 1) for each in later]
    kept = fold(early, later, 0, START + REOPEN_SECONDS + 1).incident.members
    assert {each.ends_at for each in kept} == {START + REOPEN_SECONDS + 1}


def test_a_resolve_of_something_never_seen_says_nothing() -> None:
    assert fold(None, [alert(firing=False)], 0, START) is None


def test_the_same_key_within_half_an_hour_reopens_the_same_incident() -> None:
    ended = fold(fold(None, [alert()], 0, START).incident, [alert(firing=False)], 0, START + 60).incident
    again = fold(ended, [alert(starts_at=START + 60 + 1799)], 0, START + 2000)
    assert again.events == ("reopened",)
    assert again.incident.id == ended.id
    assert again.incident.episodes == ((START, START + 60),)
    assert again.incident.firing


def test_later_it_is_a_new_incident() -> None:
    ended = fold(fold(None, [alert()], 0, START).incident, [alert(firing=False)], 0, START + 60).incident
    assert fold(ended, [alert(starts_at=START + 60 + 1801)], 0, START + 3000).incident.id != ended.id


def test_severity_rises_and_never_falls() -> None:
    opened = fold(None, [alert(labels={"severity": "warning"})], 0, START).incident
    worse = fold(opened, [alert(labels={"severity": "critical"})], 0, START)
    assert worse.events == ("worse",)
    assert worse.incident.severity == "critical"
    assert fold(worse.incident, [alert(labels={"severity": "warning"})], 0, START).incident.severity == "critical"


def test_what_was_as_bad_in_the_episode_before_is_not_told_as_worse() -> None:
    """Heat that returns is a warning first, and critical a minute later, each time."""
    hot = alert(labels={"severity": "warning"}, fingerprint="warning")
    hotter = alert(labels={"severity": "critical"}, fingerprint="critical")
    opened = fold(fold(None, [hot], 0, START).incident, [hotter], 0, START + 60).incident
    ended = [replace(each, firing=False, ends_at=START + 120) for each in (hot, hotter)]
    over = fold(opened, ended, 0, START + 120).incident
    back = fold(over, [replace(hot, starts_at=START + 300)], 0, START + 300)
    assert (back.events, back.incident.severity) == (("reopened",), "warning")
    again = fold(back.incident, [replace(hotter, starts_at=START + 360)], 0, START + 360)
    assert again.incident.severity == "critical"
    assert "worse_again" in again.events
    assert "worse" not in again.events


def test_another_part_that_becomes_critical_after_a_return_is_worse() -> None:
    """Also the same one, where its last critical episode is longer ago than what reopens an incident."""
    labels = {"severity": "critical"}
    over = [alert(firing=False, ends_at=START + 60, labels=labels, fingerprint="0")]
    first = fold(fold(None, [alert(labels=labels, fingerprint="0")], 0, START).incident, over, 0, START + 60).incident
    mild = alert(labels={"severity": "warning"}, fingerprint="w", starts_at=START + 300)
    back = fold(first, [mild], 0, START + 300).incident
    other = alert(labels=labels | {"gpu": "5"}, fingerprint="5", starts_at=START + 400)
    assert "worse" in fold(back, [other], 0, START + 400).events
    late = replace(back, started_at=START + 60 + 1801)
    assert (
        "worse" in fold(late, [alert(labels=labels, fingerprint="0", starts_at=START + 9000)], 0, START + 9000).events
    )


def test_unknown_severity_is_a_warning_and_not_lost() -> None:
    assert fold(None, [alert(labels={"severity": "page"})], 0, START).incident.severity == "warning"


def test_a_restart_of_prometheus_keeps_the_earlier_start() -> None:
    opened = fold(None, [alert()], 0, START).incident
    assert fold(opened, [alert(starts_at=START + 300)], 0, START).incident.members[0].starts_at == START


def test_an_alert_older_than_its_last_known_state_is_stale() -> None:
    ended = alert(firing=False, ends_at=START + 60)
    assert is_stale(alert(starts_at=START), ended, heard=5)
    assert is_stale(alert(starts_at=START + 60), ended, heard=5)
    assert not is_stale(alert(starts_at=START + 61), ended, heard=5)
    assert is_stale(alert(firing=False, ends_at=START - 1), alert(starts_at=START), heard=5)
    assert not is_stale(alert(), None, heard=0)


def test_an_alert_that_never_ended_comes_back_with_its_old_start() -> None:
    """Alertmanager resolves what Prometheus did not confirm for 4 minutes (seen on a real one)."""
    ended = alert(firing=False, ends_at=START + 240)
    assert not is_stale(alert(), ended, heard=61)
    closed = fold(fold(None, [alert()], 0, START).incident, [ended], 0, START + 240).incident
    again = fold(closed, [alert()], 0, START + 400)
    assert again.events == ("resumed",)
    assert again.incident.firing
    assert again.incident.started_at == START
    assert again.incident.episodes == ()  # no flap: it fired all the time


def explained(*members: Alert) -> Incident:
    cause = Cause("gpu-003 GPU 5", "hardware thermal throttling", (), labels={"node": "gpu-003", "gpu": "5"})
    return training_incident(members=members, diagnosis=Diagnosis(START, (cause,), ()))


DROP = alert("TrainMfuDropped", fingerprint="drop", labels={"run": "llama-70b"})
OVER = replace(DROP, firing=False, ends_at=START + 90)


def test_what_a_lagging_peer_still_reports_keeps_its_diagnosis() -> None:
    """Prometheus and vmalert end an alert seconds apart: by then the evidence no longer shows the cause."""
    held, late = alert("GpuThrottledThermal", fingerprint="heat"), replace(DROP, starts_at=START + 4)
    for incident in (explained(OVER, held), replace(explained(OVER), resolved_at=START + 90)):
        change = fold(incident, [late], 0, START + 95)
        assert change is not None
        assert change.incident.diagnosis == incident.diagnosis
        assert "again" not in change.events


def test_another_drop_is_diagnosed_again() -> None:
    held, later = alert("GpuThrottledThermal", fingerprint="heat"), replace(DROP, starts_at=START + 91)
    change = fold(explained(OVER, held), [later], 0, START + 95)
    assert change is not None
    assert change.incident.diagnosis is not None
    assert [cause.part for cause in change.incident.diagnosis.causes] == ["gpu-003 GPU 5"]
    assert (change.incident.diagnosis.onset, change.incident.diagnosis.recovered) == (None, START + 90)
    assert "again" in change.events


def test_keys_separate_clusters_runs_and_nodes() -> None:
    keys = {
        key_of(alert(labels=labels))
        for labels in ({}, {"node": "a"}, {"run": "a"}, {"run": "a", "node": "b"}, {"run": "b"}, {"cluster": "c2"})
    }
    assert len(keys) == 5  # a run's alerts are one incident whatever the node


def test_parts_have_one_notation() -> None:
    assert part_of({"node": "gpu-042", "gpu": "3"}) == "gpu-042 GPU 3"
    assert part_of({"node": "gpu-174", "device": "mlx5_5", "port": "1"}) == "gpu-174 mlx5_5/1"
    assert part_of({"node": "gpu-010", "rank": "77"}) == "gpu-010 rank 77"
    assert part_of({"switch": "leaf-12"}) == "switch leaf-12"
    assert part_of({"rack": "r07"}) == "rack r07"
    assert part_of({}) == ""


def test_incidents_survive_the_store() -> None:
    cause = Cause("gpu-042 GPU 3", "heat", ("a",), ("b",), START, 1.0, {"node": "gpu-042"})
    incident = training_incident(diagnosis=Diagnosis(START, (cause,), ("gap",)), episodes=((1.0, 2.0),))
    assert model.from_json(model.to_json(incident)) == incident


def test_a_resolve_leaves_what_was_said_while_it_fired() -> None:
    firing = alert(annotations={"summary": "MFU fell by 40 %"})
    opened = fold(None, [firing], 0, START).incident
    held = replace(firing, firing=False, ends_at=START + 90, annotations={"summary": "MFU fell by 16 %"})
    ended = fold(opened, [held], 0, START + 91).incident
    assert not ended.firing
    assert ended.newest().annotations["summary"] == "MFU fell by 40 %"
    again = fold(ended, [replace(firing, starts_at=START + 200, annotations={"summary": "by 30 %"})], 0, START + 200)
    assert again.incident.newest().annotations["summary"] == "by 30 %"


@pytest.mark.parametrize("claimed", [-5 * 3600.0, 0.0, 5 * 3600.0])
def test_no_time_is_in_the_future_and_a_start_that_is_known_stays(claimed: float) -> None:
    """Prometheus' clock jumps, or whoever posts claims what it likes."""
    opened = fold(None, [alert(starts_at=START - 60)], 0, START).incident
    again = fold(opened, [alert(starts_at=START + claimed)], 0, START + 60).incident
    assert again.members[0].starts_at == START - 60
    over = fold(again, [alert(firing=False, ends_at=START + 5 * 3600)], 0, START + 120).incident
    assert over.resolved_at == START + 120
    fresh = fold(None, [alert(starts_at=START + 5 * 3600)], 0, START).incident
    assert fresh.started_at == START


def test_an_alert_with_the_fingerprint_of_another_one_does_not_replace_it() -> None:
    labels = {"alertname": "GpuLost", "cluster": "c1", "gpu": "3", "node": "gpu-042", "severity": "critical"}
    fingerprint = "5a45ae0765288d70"
    opened = fold(None, [alert(labels=labels, fingerprint=fingerprint)], 0, START).incident
    forged = alert(labels=labels | {"gpu": "5"}, fingerprint=fingerprint, annotations={"summary": "GPU 5"})
    assert fold(opened, [forged], 0, START).incident.members == opened.members
