from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from alerting_fakes import START, alert, training_incident
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from pyrometer_alerting.channel import incident_page, terminal
from pyrometer_alerting.channel.blocks import Style
from pyrometer_alerting.channel.card import MOST_WORDS, card_of, words
from pyrometer_alerting.channel.evidence import build_evidence
from pyrometer_alerting.channel.messages import build, build_reply, has_chart
from pyrometer_alerting.incidents.lifecycle import fold
from pyrometer_alerting.model import text
from pyrometer_alerting.model.culprits import culprits
from pyrometer_alerting.model.incident import Cause, ChartCurve, Cost, Diagnosis, Incident, Shape, from_json, to_json
from pyrometer_alerting.model.links import board_links, runbook_url, without_credentials
from pyrometer_simulator.slack_blocks import check_message

ROOT = Path(__file__).parents[3]
GOLDEN = Path(__file__).with_name("golden")
STYLE = Style(
    notice="SIMULATED CLUSTER",
    grafana_url="http://127.0.0.1:3000",
    alertmanager_url="http://127.0.0.1:9093/",
    prometheus_url="http://127.0.0.1:9090",
    runbook_url="https://git.example/pyrometer/blob/main/",
)
HEAT = Cause(
    "gpu-042 GPU 3",
    "hardware thermal throttling",
    ("throttled 38 s of 41 s since 03:12:05 UTC", "SM clock 1230 MHz against 1980 MHz"),
    (),
    START,
    120.0,
    {"node": "gpu-042", "gpu": "3"},
    "high",
    "throttle",
    "held at 1230 MHz (the others 1980), 92 \u00b0C; the other ranks wait for it",
    "GpuThrottledThermal",
)
FLAP = Cause(
    "gpu-174 mlx5_5/1",
    "link went down",
    ("link went down once, at 03:13:05 UTC",),
    ("began 40 s after the drop",),
    START,
    30.0,
    {"node": "gpu-174", "device": "mlx5_5", "port": "1"},
)
DIAGNOSED = Diagnosis(
    START + 6,
    (HEAT, FLAP),
    ("no data from gpu-300 since 03:12:00 UTC",),
    onset=START - 20,
    shape=Shape("step_down", 0.93, "stepped down and stayed down (by 27 %)"),
    cost=Cost(gpu_hours=1.234, gpus=512, expected=0.45, until=START + 5),
    curve=ChartCurve(
        at=tuple(START - 300 + 17.0 * index for index in range(20)),
        median=(0.451,) * 17 + (0.33,) * 3,
        lowest=(0.44,) * 17 + (0.31,) * 3,
        expected=0.45,
    ),
)
TRANSCRIPT = {
    "firing": training_incident(),
    "diagnosed": training_incident(diagnosis=DIAGNOSED),
    "unknown": training_incident(diagnosis=Diagnosis(START, (Cause("unknown", ""),), ("Prometheus did not answer",))),
    "resolved": training_incident(
        diagnosis=DIAGNOSED,
        resolved_at=START + 300,
        members=(replace(training_incident().members[0], firing=False, ends_at=START + 300),),
    ),
    "flapping_link": fold(
        None,
        [
            alert(
                "NicLinkFlapping",
                labels={"node": "gpu-174", "device": "mlx5_5", "port": "1", "severity": "warning"},
                annotations={"summary": "gpu-174 mlx5_5/1 is flapping", "runbook": "https://example.org/r#flap"},
            )
        ],
        0,
        START,
    ).incident,
}


@pytest.mark.parametrize("name", TRANSCRIPT)
def test_messages_are_as_committed(name: str, request: pytest.FixtureRequest) -> None:
    incident = replace(TRANSCRIPT[name], id="incident-1")
    shown = {}
    for name_of, message in (("card", build(incident, STYLE)), ("thread", build_evidence(incident, STYLE))):
        check_message({"text": message.text, "blocks": message.blocks})
        shown[name_of] = {"blocks": message.blocks, "terminal": terminal.render(message).splitlines()}
    file = GOLDEN / f"{name}.json"
    if request.config.getoption("--update-golden", default=False):
        file.write_text(json.dumps(shown, indent=1, ensure_ascii=False) + "\n")
    assert shown == json.loads(file.read_text()), "pytest --update-golden rewrites the files"


def test_the_header_names_the_culprit_its_cause_and_how_sure_that_is() -> None:
    message = build(TRANSCRIPT["diagnosed"], STYLE)
    header = "🔴 llama-70b 27 % slower: gpu-042 GPU 3, hardware thermal throttling (certain)"
    assert message.blocks[0]["text"]["text"] == header
    assert message.text == header, "what a push notification shows"


def test_the_evidence_has_each_cause_and_each_of_its_sentences_on_a_line() -> None:
    assert build_evidence(TRANSCRIPT["diagnosed"], STYLE).text.split("*Evidence*\n")[1].splitlines()[:9] == [
        "1. gpu-042 GPU 3: hardware thermal throttling (certain)",
        "\u2022 throttled 38 s of 41 s since 03:12:05 UTC",
        "\u2022 SM clock 1230 MHz against 1980 MHz",
        "2. gpu-174 mlx5_5/1: link went down",
        "\u2022 link went down once, at 03:13:05 UTC",
        "\u2022 against: began 40 s after the drop",
        "_MFU curve:_ stepped down and stayed down (by 27 %), 93 % sure",
        "_Missing evidence:_ no data from gpu-300 since 03:12:00 UTC",
        f"TrainMfuDropped, cluster c1, critical, diagnosed {text.slack_time(START + 6)}",
    ]


def test_the_message_does_not_depend_on_the_moment_it_is_built() -> None:
    assert build(TRANSCRIPT["diagnosed"], STYLE).digest() == build(TRANSCRIPT["diagnosed"], STYLE).digest()


def test_flap_memory_is_shown() -> None:
    incident = training_incident(episodes=((START - 600, START - 420), (START - 300, START - 260)))
    assert "fired 3 times in 10 min" in json.dumps(build(incident, STYLE).blocks)
    assert "_Earlier it lasted_ 3 min, 40 s" in build_evidence(incident, STYLE).text


def test_degraded_messages_carry_less() -> None:
    incident = TRANSCRIPT["diagnosed"]
    assert has_chart(build_evidence(incident, STYLE))
    assert not has_chart(build_evidence(incident, STYLE, 1))
    for make in (build, build_evidence):
        assert any(block["type"] == "context" for block in make(incident, STYLE, 1).blocks)
        assert all(block["type"] in ("header", "section") for block in make(incident, STYLE, 2).blocks)
        assert make(incident, STYLE, 3).blocks == []
        assert "gpu-042" in make(incident, STYLE, 3).text
    assert "scontrol update NodeName=gpu-042" in build(incident, STYLE, 3).text


def test_the_chart_is_slacks_own_or_a_picture_or_none() -> None:
    incident = replace(TRANSCRIPT["diagnosed"], picture="F123")
    kinds = {
        (charts, native): [
            block["type"]
            for block in build_evidence(incident, replace(STYLE, charts=charts), native=native).blocks
            if block["type"] in ("data_visualization", "image")
        ]
        for charts in ("auto", "picture", "off")
        for native in (True, False)
    }
    assert kinds["auto", True] == ["data_visualization"]
    assert kinds["auto", False] == kinds["picture", True] == kinds["picture", False] == ["image"]
    assert kinds["off", True] == kinds["off", False] == []
    assert not has_chart(build_evidence(replace(incident, picture=""), STYLE, native=False))


def test_what_it_cost_is_said_live_and_at_the_end() -> None:
    for name in ("diagnosed", "resolved"):
        assert "1.2 GPU-hours lost." in json.dumps(build(TRANSCRIPT[name], STYLE).blocks)
    reply = build_reply(TRANSCRIPT["resolved"], "resolved", STYLE)
    assert reply.text.startswith("✅ Resolved after 5 min; about 1.2 GPU-hours lost")
    assert "lost" not in build_reply(replace(TRANSCRIPT["resolved"], diagnosis=None), "resolved", STYLE).text


def test_what_is_over_is_told_as_it_was() -> None:
    resolved = TRANSCRIPT["resolved"]
    header = "✅ Resolved: llama-70b was 27 % slower: gpu-042 GPU 3, hardware thermal throttling (certain)"
    assert build(resolved, STYLE).text == header
    assert "*Now:*" not in json.dumps(build(resolved, STYLE).blocks)
    assert build_evidence(resolved, STYLE).text.startswith("While it fired: MFU of run llama-70b is 32.9 %")


def many(**more: Any) -> Incident:
    hot = [
        alert(
            "GpuThrottledThermal",
            fingerprint=node,
            labels={"node": node, "gpu": "1", "component": "gpu"},
            annotations={"summary": f"{node} GPU 1 is hot", "description": f"{node} GPU 1 was slowed down for 30 s."},
        )
        for node in ("gpu-041", "gpu-042", "gpu-043")
    ]
    gone = alert("GpuLost", fingerprint="x", labels={"node": "gpu-044", "gpu": "0"}, annotations={"summary": "gone"})
    return replace(fold(None, [*hot, gone], 0, START).incident, domain="rack r07", **more)


def test_what_many_parts_tell_is_counted_and_none_of_them_stands_for_all() -> None:
    message = build(many(), STYLE)
    counted = "3 GpuThrottledThermal, 1 GpuLost; the latest: gpu-041 GPU 1 was slowed down for 30 s."
    assert counted in message.blocks[1]["text"]["text"]
    assert message.text == "\U0001f534 GpuThrottledThermal (and 1 other alerts) at 4 parts of 4 nodes: rack r07"


def test_of_many_parts_the_worst_are_shown() -> None:
    mild = [
        alert("CollectorFailing", fingerprint=str(n), labels={"node": f"gpu-{n:03d}", "severity": "warning"})
        for n in range(20)
    ]
    grave = alert("GpuLost", fingerprint="x", labels={"node": "gpu-044", "gpu": "0"}, starts_at=START + 9)
    shown = build_evidence(replace(fold(None, [*mild, grave], 0, START).incident, domain="rack r07"), STYLE).text
    assert "*21 of 21 firing*\n\u2022 gpu-044 GPU 0: GpuLost\n" in shown
    assert "and 9 more" in shown


def test_a_headline_that_names_the_culprit_names_it_once() -> None:
    stalled = alert(
        "TrainStalled",
        labels={"run": "r", "component": "train", "node": "gpu-042", "rank": "17"},
        annotations={"summary": "Run r has stalled: rank 17 on gpu-042 fell silent first"},
    )
    shown = build(training_incident(alertname="TrainStalled", members=(stalled,)), STYLE)
    assert shown.text == "\U0001f534 Run r has stalled: rank 17 on gpu-042 fell silent first"


def test_a_run_that_stands_is_counted_and_not_judged() -> None:
    stopped = replace(DIAGNOSED, shape=Shape("stopped", 1.0, "no batch for 150 s, the usual step takes 3.2 s"))
    shown = build_evidence(training_incident(diagnosis=stopped), STYLE).text
    assert "_MFU curve:_ no batch for 150 s, the usual step takes 3.2 s\n" in shown


def test_what_is_stored_comes_back_as_it_was() -> None:
    for incident in TRANSCRIPT.values():
        assert from_json(to_json(incident)) == incident


def test_only_web_links_become_links() -> None:
    for runbook in ("javascript:alert(1)", "http://a/<!channel>", "//host/x", "http:///x", "docs/alerts.md#x"):
        incident = training_incident(members=(alert("X", annotations={"runbook": runbook}),))
        shown = json.dumps(build(incident, Style()).blocks)
        assert "|Runbook" not in shown
        assert "<!channel" not in shown


def test_a_runbook_of_the_project_is_a_link_below_the_base_and_nowhere_else() -> None:
    base = "https://git.example/blob/main/"
    assert runbook_url("docs/alerts.md#gpulost", base) == "https://git.example/blob/main/docs/alerts.md#gpulost"
    assert runbook_url("https://other.example/r#x", base) == "https://other.example/r#x"
    for runbook in ("../../etc", "docs/../../x", "/etc", "//evil.example", "x?y", "a b", "javascript:alert(1)", ""):
        assert runbook_url(runbook, base) == ""
    assert runbook_url("docs/alerts.md", "") == ""


def test_the_boards_that_messages_lead_to_exist() -> None:
    boards = {json.loads(path.read_text())["uid"] for path in (ROOT / "dashboards" / "json").glob("*.json")}
    named = {url.split("/d/")[1].split("?")[0] for _, url in board_links(TRANSCRIPT["diagnosed"], "http://g.example")}
    switch = replace(TRANSCRIPT["firing"], domain="switch leaf-12", run="")
    named |= {url.split("/d/")[1].split("?")[0] for _, url in board_links(switch, "http://g.example")}
    assert "pyrometer-fabric" in named
    assert named <= boards


def test_links_begin_before_the_drop_and_end_after_the_resolve() -> None:
    (_, url), *_ = board_links(TRANSCRIPT["resolved"], "http://g.example")
    assert f"from={int(1000 * (START - 20 - 900))}&amp;to={int(1000 * (START + 300 + 600))}" in url


hostile = st.text(max_size=200) | st.sampled_from(
    [
        "<!channel>",
        "<@U1>",
        "&lt;!here>",
        "a" * 4500,
        "\u202egpj.exe",
        "<http://x|y>",
        "*`_~" * 50,
        "😀" * 400,
        "\n" * 99,
    ]
)


# Without shrinking: with texts of 20,000 characters it takes minutes and explains nothing.
@settings(max_examples=60, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(
    labels=st.fixed_dictionaries(
        dict.fromkeys(("alertname", "cluster", "run", "node", "gpu", "severity", "component"), hostile)
    ),
    annotations=st.fixed_dictionaries(dict.fromkeys(("summary", "description", "runbook"), hostile)),
    members=st.integers(1, 60),
    strings=st.lists(hostile, min_size=3, max_size=8),
    firing=st.booleans(),
)
def test_hostile_labels_stay_within_limits_and_ping_nobody(
    labels: dict[str, str], annotations: dict[str, str], members: int, strings: list[str], firing: bool
) -> None:
    alerts = [alert(fingerprint=str(n), labels=labels, annotations=annotations) for n in range(members)]
    incident = fold(None, alerts, 3, START).incident
    causes = tuple(Cause(part, part, tuple(strings), tuple(strings), START, 9.0, {"node": part}) for part in strings)
    incident = replace(
        incident,
        run=labels["run"] or "r",
        component="train",
        diagnosis=Diagnosis(
            START,
            causes,
            tuple(strings),
            shape=Shape(strings[0], 0.5, strings[1], strings[2], strings[0]),
            cost=Cost(members * 1e6, members, 0.4, START),
            curve=ChartCurve(tuple(map(float, range(members))), (0.1,) * members, (0.0,) * members, 0.4),
            run_links=tuple((f"tracker {number}", f"https://t.example/{'x' * 480}") for number in range(4)),
        ),
        picture="F1",
        resolved_at=None if firing else START + 9,
        episodes=((START - 9.0, START - 5.0),) * 20,
    )
    style = Style(
        notice=strings[0],
        grafana_url="https://grafana.example/",
        logs="loki",
        alertmanager_url="https://am.example",
        prometheus_url="https://prometheus.example",
        runbook_url="https://git.example",
    )
    levels = [build(incident, style, level, linked=linked) for level in range(4) for linked in (True, False)]
    levels += [build_evidence(incident, style, level, native=native) for level in range(4) for native in (True, False)]
    assert words("\n".join(card_of(incident, "slurm").lines)) <= MOST_WORDS
    for message in (*levels, build_reply(incident, "joined", style), build_reply(incident, "resolved", style)):
        check_message({"text": message.text, "blocks": message.blocks or None})
        for shown in [message.text, *_mrkdwn_texts(message.blocks)]:
            assert not re.search(r"<(?!!date\^|https?://)", shown)
            assert not re.search("[\u200b-\u200f\u202a-\u202e\u2066-\u2069\x00-\x08\x7f]", shown)
        terminal.render(message)
    rendered = incident_page.render(
        [incident_page.Card(incident, build(incident, style), build_evidence(incident, style), "x")],
        incident_page.Banner(strings[0]),
        START,
    )
    assert "<script" not in rendered
    assert "<!channel" not in rendered


def _mrkdwn_texts(blocks: list[dict[str, Any]]) -> list[str]:
    objects = [
        item for block in blocks for item in (block.get("text"), *block.get("fields", []), *block.get("elements", []))
    ]
    return [item["text"] for item in objects if item is not None and item["type"] == "mrkdwn"]


def test_an_address_is_shown_without_its_credentials() -> None:
    assert without_credentials("https://me:s3cr3t@am.example:9093/x?a=b@c") == "https://am.example:9093/x?a=b@c"
    assert without_credentials("http://am.example") == "http://am.example"
    assert without_credentials("") == ""


def test_slack_makes_no_links_of_urls_and_mentions_in_names() -> None:
    objects = [
        item
        for block in build(TRANSCRIPT["firing"], STYLE).blocks
        for item in [block.get("text"), *block.get("fields", []), *block.get("elements", [])]
        if item and item["type"] == "mrkdwn"
    ]
    assert objects
    assert all(item["verbatim"] is True for item in objects)


def test_a_message_of_many_members_costs_as_many_steps() -> None:
    """Counted, not timed: the names of all alerts are read a fixed number of times for each member."""
    read = 0

    class Counting(dict[str, str]):
        def get(self, key: str, default: Any = None) -> Any:
            nonlocal read
            read += 1
            return super().get(key, default)

    def reads(count: int) -> int:
        nonlocal read
        members = [
            replace(
                TRANSCRIPT["firing"].members[0], fingerprint=f"f{n}", labels=Counting(node=f"n{n}", alertname=f"A{n}")
            )
            for n in range(count)
        ]
        read = 0
        several = replace(TRANSCRIPT["firing"], members=tuple(members))
        build(several, STYLE)
        build_evidence(several, STYLE)
        return read

    assert reads(2000) < 11 * reads(200)


def test_the_rank_that_the_alert_names_is_not_another_part_beside_its_gpu() -> None:
    stalled = alert("TrainStalled", labels={"run": "llama-70b", "node": "gpu-042", "rank": "19"})
    elsewhere = alert("GpuLost", labels={"node": "gpu-043", "gpu": "1"})
    found = Cause("gpu-042 GPU 3", "fell silent first", labels={"node": "gpu-042", "gpu": "3"})
    incident = training_incident(members=(stalled, elsewhere), diagnosis=Diagnosis(START, (found,)))
    assert culprits(incident) == ["gpu-042 GPU 3", "gpu-043 GPU 1"]
    assert culprits(replace(incident, diagnosis=None)) == ["gpu-042 rank 19", "gpu-043 GPU 1"]
