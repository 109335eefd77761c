from __future__ import annotations

import itertools
import math
import re
import threading
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from alerting_fakes import SILENT, START, Bench, FakePrometheus, training_incident, wait_until
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from pyrometer_alerting.app import main
from pyrometer_alerting.channel import terminal
from pyrometer_alerting.channel.blocks import Style
from pyrometer_alerting.channel.digest import digest_page
from pyrometer_alerting.channel.digest.data import (
    CauseCount,
    DigestReport,
    Month,
    Offender,
    RunTime,
    gather,
    month_ranges,
)
from pyrometer_alerting.channel.digest.digest_message import build_digest, charts, headline, month_line, mtbf_line
from pyrometer_alerting.channel.digest.digest_pictures import DigestPictures
from pyrometer_alerting.channel.digest.mtbf import mtbf
from pyrometer_alerting.channel.digest.scheduler import DAY, Digests, DigestScheduler, Schedule
from pyrometer_alerting.channel.incident_pictures import PictureUploader
from pyrometer_alerting.model.incident import Cause, Cost, Diagnosis, Incident
from pyrometer_kit.prometheus import Series
from pyrometer_simulator.slack_blocks import check_message

ZURICH = ZoneInfo("Europe/Zurich")
PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)
DAILY, WEEKLY = Schedule("daily", 9 * 60), Schedule("weekly", 9 * 60, 0)
REPORT = DigestReport(
    kind="weekly",
    start=START - 7 * DAY,
    end=START,
    runs=(
        RunTime("c1", "llama-70b", {"useful": 560000.0, "rework": 12000.0, "down": 20000.0, "checkpoint": 8000.0}),
        RunTime("c1", "moe", {"useful": 200000.0, "other": 4000.0}),
    ),
    failures=mtbf(7, 160.0),
    causes=(CauseCount("hardware thermal throttling", 4, 38.2), CauseCount("unknown", 2, 1.0)),
    incidents=6,
    firing=1,
    median_seconds=840.0,
    gpu_hours=39.2,
    offenders=(
        Offender("GPU", "1652922000123", "gpu-042 GPU 3", 7, "Xids"),
        Offender("cable", "MT2", "", 5, "UFM events"),
    ),
    xids=(("79", "critical", 3.0), ("43", "app", 2.0)),
    months=(Month("2026-10", 12.0, 0.0, None), Month("2026-11", 30.0, 1.0, 431.0)),
)


def point(value: float, **labels: str) -> Series:
    return Series(labels, ((START, value),))


def test_without_a_failure_only_the_lower_end_is_known() -> None:
    found = mtbf(0, 100.0)
    assert found.hours is None
    assert math.isinf(found.high)
    said = mtbf_line(replace(REPORT, failures=found))
    assert said == "more than 33 h (90 %), 0 restarts in 100 h of runs"
    assert mtbf_line(replace(REPORT, failures=None)) == "not measured"


def cluster() -> FakePrometheus:
    prometheus = FakePrometheus()
    run = {"cluster": "c1", "run": "llama"}
    prometheus.on("run_seconds", [point(90.0 * 3600, **run, state="useful"), point(10.0 * 3600, **run, state="down")])
    prometheus.on("restarts", [point(3.0)])
    prometheus.on(r"by \(cluster, node, gpu, uuid\)", [point(5.0, node="gpu-042", gpu="3", uuid="GPU-1")])
    prometheus.on(
        r"by \(cluster, cable\)", [point(4.0, cluster="c1", cable="MT1"), point(1.0, cluster="c1", cable="MT2")]
    )
    prometheus.on(r"by \(cluster, node, device, port\)", [point(9.0, node="gpu-007", device="mlx5_1", port="1")])
    prometheus.on("gpu_info", [point(1.0, serial="165")])
    prometheus.on("port_info", [point(1.0, cable="MT3")])
    prometheus.on(r"by \(xid, class\)", [point(2.0, xid="79", **{"class": "critical"}), point(0.0, xid="31")])
    prometheus.on("ECC_DBE", [])
    prometheus.on("sum", [point(7.0)])
    return prometheus


def incidents() -> list[Incident]:
    hot = Diagnosis(START, (Cause("gpu-042 GPU 3", "heat", labels={"node": "n"}),), cost=Cost(2.0, 8, 0.4, START))
    return [
        training_incident(diagnosis=hot, started_at=START - 400, resolved_at=START - 100),
        training_incident(id="2", started_at=START - 300),
        training_incident(id="3", started_at=START - 9 * DAY, resolved_at=START - 8 * DAY),
        training_incident(id="4", component="stack", started_at=START - 100),
        training_incident(id="5", joined_into="1", started_at=START - 100),
    ]


def test_a_report_counts_what_happened_in_its_time() -> None:
    report = gather(cluster(), incidents(), "daily", start=START - DAY, end=START, zone=ZURICH, dead=2)
    assert (report.incidents, report.firing, report.median_seconds, report.gpu_hours) == (2, 1, 300.0, 2.0)
    assert report.causes == (CauseCount("heat", 1, 2.0), CauseCount("unknown", 1, 0.0))
    assert report.runs[0].goodput == pytest.approx(0.9)
    assert report.failures is not None
    assert (report.failures.failures, report.failures.observed) == (3, 90.0)
    assert report.xids == (("79", "critical", 2.0),)
    assert [(found.kind, found.serial, found.times) for found in report.offenders] == [
        ("port", "MT3", 9),
        ("GPU", "165", 5),
        ("cable", "MT1", 4),
    ]
    assert report.months[-1] == Month("2026-11", 7.0, None, 7.0)
    assert report.missing == ()


def test_what_prometheus_does_not_know_is_missing_and_not_zero() -> None:
    silent = FakePrometheus()
    silent.on(".", SILENT)
    report = gather(silent, incidents(), "daily", start=START - DAY, end=START, zone=ZURICH)
    assert report.incidents == 2
    assert report.failures is None
    assert report.months == ()
    assert any(line.startswith("goodput: Prometheus did not answer") for line in report.missing)
    empty = gather(FakePrometheus(), [], "daily", start=START - DAY, end=START, zone=ZURICH)
    assert empty.missing == ("goodput: no run ledger (cluster exporter) in this period",)
    assert "goodput" not in headline(empty, ZURICH)
    assert gather(None, [], "daily", start=START - DAY, end=START, zone=ZURICH).missing


def test_months_are_the_calendars_in_the_readers_zone() -> None:
    ranges = month_ranges(datetime(2026, 3, 15, 12, tzinfo=ZURICH).timestamp(), ZURICH)
    assert [name for _, _, name in ranges] == ["2025-10", "2025-11", "2025-12", "2026-01", "2026-02", "2026-03"]
    assert datetime.fromtimestamp(ranges[0][0], tz=ZURICH).isoformat() == "2025-10-01T00:00:00+02:00"
    assert all(earlier[1] == later[0] for earlier, later in itertools.pairwise(ranges))


def test_the_digest_is_within_slacks_limits_and_reads_well(request: pytest.FixtureRequest) -> None:
    message = build_digest(REPORT, Style(notice="SIMULATED CLUSTER"), ZURICH)
    check_message({"text": message.text, "blocks": message.blocks})
    assert message.text.startswith("Weekly digest, week to Sat 21 Nov 2026: goodput 94.5 %, 6 incidents\n")
    shown = terminal.render(message)
    for said in (
        "MTBF: 23 h (90 %: 12 to 49 h), 7 restarts in 160 h of runs",
        "llama-70b: 93.3 % of 167 h; down 3.3 %, rework 2.0 %, checkpoint 1.3 %",
        "4 x hardware thermal throttling, 38 GPU-hours lost",
        "GPU 1652922000123 (gpu-042 GPU 3): 7 Xids in 30 days",
        "Xid 79 (critical): 3 times",
        "2026-10: 12 Xids, 0 uncorrected memory errors, link flaps not measured",
    ):
        assert said in shown
    assert [block["title"] for block in message.blocks if block["type"] == "data_visualization"] == [
        "Incidents by cause",
        "By month",
    ]


def test_an_empty_digest_says_so() -> None:
    message = build_digest(DigestReport("daily", START - DAY, START), Style(), ZURICH)
    check_message({"text": message.text, "blocks": message.blocks})
    assert "0 incidents" in message.text
    assert month_line(Month("m", None, None, None)).count("not measured") == 3


hostile = st.text(max_size=60) | st.sampled_from(["<!channel>", "*_`~", "\u202egpj", "😀" * 99, "a" * 4000, "\n", ""])


@settings(max_examples=40, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(texts=st.lists(hostile, min_size=1, max_size=60))
def test_hostile_names_break_no_digest(texts: list[str]) -> None:
    report = replace(
        REPORT,
        runs=tuple(RunTime(name, name, {"useful": 1.0, name or "x": 2.0}) for name in texts),
        causes=tuple(CauseCount(name, 1 + index, 1e9) for index, name in enumerate(texts)),
        offenders=tuple(Offender(name, name, name, 3, name) for name in texts),
        xids=tuple((name, name, 1e12) for name in texts),
        months=tuple(Month(name, 1.0, None, 2.0) for name in texts[:6]),
        missing=tuple(texts),
    )
    message = build_digest(report, Style(notice=texts[0]), ZURICH)
    check_message({"text": message.text, "blocks": message.blocks})
    assert not re.search(r"<(?!!date\^)", message.text.replace("&lt;", ""))
    terminal.render(message)
    page = digest_page.render([report], texts[0], ZURICH)
    assert "<!channel" not in page


def test_schedules_follow_the_readers_clock_through_summer_time() -> None:
    before = datetime(2026, 10, 24, 9, 0, tzinfo=ZURICH).timestamp()
    after = DAILY.latest(before + 26 * 3600, ZURICH)
    assert after - before == 25 * 3600
    assert DAILY.span(after, ZURICH) == (before, after)
    monday = datetime(2026, 11, 16, 9, 0, tzinfo=ZURICH).timestamp()
    assert WEEKLY.latest(START, ZURICH) == monday
    assert WEEKLY.latest(monday - 1, ZURICH) == monday - 7 * DAY


@pytest.fixture
def morning(bench: Bench) -> Bench:
    """A minute after a digest was due, some days ago: Slack's own clock is later."""
    bench.clock.time = DAILY.latest(bench.clock.time - 5 * DAY, ZURICH) + 60
    bench.restart()
    return bench


def digest_scheduler(bench: Bench, *schedules: Schedule) -> DigestScheduler:
    digests = Digests(schedules or (DAILY,), ZURICH, cluster())
    return DigestScheduler(bench.store, digests, style=Style(), clock=bench.clock, changed=bench.courier.wake)


def test_a_digest_is_sent_once_a_day_whatever_happens(morning: Bench) -> None:
    sender = digest_scheduler(morning)
    assert sender.step() == []  # the first start: nobody waits for yesterday's
    morning.clock.advance(DAY)
    assert sender.step() == ["daily"]
    assert digest_scheduler(morning).step() == []  # a restart
    morning.restart()
    morning.deliver()
    (message,) = morning.messages
    assert message["text"].startswith("Daily digest, ")
    morning.clock.advance(DAY)
    assert sender.step() == ["daily"]
    morning.deliver()
    assert len(morning.messages) == 2


@pytest.mark.parametrize("kind", ["close_after", "close_before"])
def test_a_lost_answer_leads_to_one_digest(morning: Bench, kind: str) -> None:
    sender = digest_scheduler(morning)
    sender.step()
    morning.clock.advance(DAY)
    sender.step()
    morning.slack.inject("chat.postMessage", kind)
    morning.deliver()
    assert len(morning.messages) == 1


def test_a_digest_that_is_too_late_is_left_out(morning: Bench) -> None:
    sender = digest_scheduler(morning)
    sender.step()
    morning.clock.advance(DAY + 13 * 3600)
    due = DAILY.latest(morning.clock.time, ZURICH)
    assert sender.step() == (["daily"] if morning.clock.time - due <= 12 * 3600 else [])


def kinds(bench: Bench) -> list[str]:
    (message,) = bench.messages
    return [block["type"] for block in message["blocks"]]


def painter(bench: Bench, charts: str = "auto") -> DigestPictures:
    pictures = DigestPictures(
        bench.store,
        PictureUploader(bench.web, lambda _: None, bench.courier.limits.breaker, bench.clock),
        charts=charts,
        clock=bench.clock,
        changed=bench.courier.wake,
    )
    pictures.load = lambda: lambda _block: PNG
    return pictures


@pytest.fixture
def plain(morning: Bench) -> Bench:
    """A workspace without chart blocks that has just got a digest."""
    morning.slack.native_charts = False
    sender = digest_scheduler(morning)
    sender.step()
    morning.clock.advance(DAY)
    with morning.store.transaction() as tx:
        later = morning.clock.time - 7200 - START  # whatever today is
        for incident in incidents():
            ended = incident.resolved_at and incident.resolved_at + later
            moved = replace(incident, started_at=incident.started_at + later, resolved_at=ended)
            tx.save_incident(moved, morning.clock.time)
    sender.step()
    morning.deliver()
    return morning


def test_a_workspace_without_charts_gets_the_text_at_once_and_the_pictures_by_an_edit(plain: Bench) -> None:
    assert "header" in kinds(plain)
    assert not {"data_visualization", "image"} & set(kinds(plain))
    assert painter(plain).step()
    plain.deliver()
    (message,) = plain.messages
    image = next(block for block in message["blocks"] if block["type"] == "image")
    assert plain.slack.files.content(image["slack_file"]["id"]) == PNG
    assert image["alt_text"] == "Incidents by cause: incidents heat 1, unknown 1"
    assert kinds(plain)[-1] == "context"
    assert plain.count("chat.postMessage", "ok") == 1
    assert not painter(plain).step()


def test_what_the_workspace_refused_once_is_not_tried_with_the_next_digest(plain: Bench) -> None:
    refused = plain.count("chat.postMessage", "invalid_blocks")
    plain.clock.advance(DAY)
    digest_scheduler(plain).step()
    plain.deliver()
    assert len(plain.messages) == 2
    assert plain.count("chat.postMessage", "invalid_blocks") == refused == 1


@pytest.mark.parametrize("trouble", ["upload", "processing", "library", "off"])
def test_a_digest_whose_picture_cannot_be_made_stays_as_text(plain: Bench, trouble: str) -> None:
    pictures = painter(plain, "off" if trouble == "off" else "auto")
    if trouble == "upload":
        plain.slack.inject("files.getUploadURLExternal", "error", error="missing_scope")
    if trouble == "processing":
        plain.slack.files.processing_seconds = 3600.0
    if trouble == "library":
        pictures.load = lambda: (_ for _ in ()).throw(ImportError("matplotlib"))
    pictures.step()
    plain.deliver(5)
    assert "header" in kinds(plain)
    assert "image" not in kinds(plain)
    plain.clock.advance(61)
    assert pictures.step() is (trouble == "upload")  # which may work the next time


def test_pictures_are_sent_from_the_start_where_they_are_wanted(morning: Bench) -> None:
    morning.courier._charts = "picture"
    sender = digest_scheduler(morning)
    sender.step()
    morning.clock.advance(DAY)
    sender.step()
    morning.deliver()
    assert morning.count("chat.postMessage") == 1
    assert "data_visualization" not in kinds(morning)
    assert painter(morning, "picture").step()
    morning.deliver()
    assert "image" in kinds(morning)


def test_no_picture_is_made_where_slack_draws_the_chart(morning: Bench) -> None:
    sender = digest_scheduler(morning)
    sender.step()
    morning.clock.advance(DAY)
    sender.step()
    morning.deliver()
    assert "data_visualization" in kinds(morning)
    assert not painter(morning).step()


def test_bars_are_drawn_with_their_numbers_whatever_they_are_called() -> None:
    pytest.importorskip("matplotlib")
    from pyrometer_alerting.channel.figures import draw_bars

    hostile = replace(REPORT, causes=(CauseCount("$\\frac{", 3, 0.0), CauseCount("\u202e\U0001f525" * 40, 0, 0.0)))
    for report in (REPORT, hostile):
        for block in charts(report):
            assert draw_bars(block).startswith(b"\x89PNG")


def test_the_page_shows_the_same_numbers() -> None:
    page = digest_page.render([REPORT], "SIMULATED", ZURICH)
    for said in ("llama-70b", "1652922000123", "431", "23 h (90 %: 12 to 49 h)", "hardware thermal throttling"):
        assert said in page


def test_the_command_prints_it_beside_the_running_service(
    morning: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["digest", "--print", "--weekly", f"--storage.path={tmp_path / 'store'}"], {}) == 0
    assert capsys.readouterr().out.startswith("Weekly digest, week to ")
    assert main.run(["digest", "--cluster=prod-a", f"--storage.path={tmp_path / 'store'}"], {}) == 0
    assert capsys.readouterr().out.startswith("Daily digest of prod-a, ")
    assert main.run(["digest", "--storage.path=/nonexistent"], {}) == 2
    assert main.run(["digest", "--digest.timezone=Nowhere"], {}) == 2


def test_the_page_is_made_when_somebody_looks(morning: Bench) -> None:
    sender = digest_scheduler(morning)
    assert sender.page() is None
    thread = threading.Thread(target=sender.run, daemon=True)
    thread.start()
    wait_until(lambda: sender.page() is not None)
    sender.stop()
    thread.join(5)
    assert "Weekly digest" in str(sender.page())
