"""The ledger's samples: before, during and after Prometheus's and its own outages."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pyrometer_exporters.cluster.ledger import collector as module
from pyrometer_exporters.cluster.ledger.collector import COLLECTOR, LedgerCollector
from pyrometer_exporters.cluster.main import CLUSTER_EXPORTER, main
from pyrometer_exporters.framework.collector import Context
from pyrometer_exporters.framework.exposition import Renderer
from pyrometer_exporters.framework.outcome import PartError
from pyrometer_kit.errors import UsageError
from pyrometer_kit.flags import Flags

SECONDS = "pyrometer_run_seconds_total"


class Exporter:
    """A ledger collector over a recorded world, that is turned by hand."""

    def __init__(self, folder: Path, recorded: Any, clock: Any, scraped: Callable[[Any], Any]) -> None:
        self.state, self.prometheus, self.clock, self._scraped = folder, recorded, clock, scraped
        self.collector: LedgerCollector | None = None

    def start(self, *argv: str) -> None:
        self.stop()
        parser = Flags("test", "")
        CLUSTER_EXPORTER.add_flags(parser)
        COLLECTOR.add_flags(parser)
        context = Context(parser.parse_args(argv), self.clock, Path(), Path(), Path(), self.state)
        self.collector = LedgerCollector(context, self.prometheus)

    def stop(self) -> None:
        if self.collector is not None:
            self.collector.close()

    def at(self, milliseconds: int) -> Any:
        """Return the samples at that time."""
        assert self.collector is not None
        self.clock.now = milliseconds / 1000
        self.prometheus.now = milliseconds
        self.collector._poller.turn()
        return self.scrape()

    def scrape(self) -> Any:
        assert self.collector is not None
        return self._scraped(list(self.collector.collect(time.monotonic() + 4)))


@pytest.fixture
def exporter(tmp_path: Path, audit: Any, world: Any, clock: Any, scraped: Any) -> Iterator[Exporter]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module.Poller, "start", lambda self: None)
        made = Exporter(tmp_path, audit(world).prometheus, clock, scraped)
        made.clock.now = world.now / 1000
        yield made
        made.stop()


@pytest.fixture
def trained(world: Any) -> Any:
    """An hour and a half with a crash, checkpoints and an evaluation."""
    world.start(20_000)
    for round_ in range(6):
        for _ in range(850):
            world.step(1000)
        world.part_between_steps("checkpoint", 20_000)
        if round_ == 2:
            world.crash(500, 90_000)
            world.start(30_000, world.number - 100)
            world.part_between_steps("eval", 15_000)
    for _ in range(300):
        world.step(1000)
    return world


def test_the_output_is_the_golden_one(exporter: Exporter, trained: Any, golden: Callable[[str, str], None]) -> None:
    exporter.start("--collector.ledger.target=llama-8b=1e9", "--collector.ledger.target=other=5")
    samples = exporter.at(trained.now + 90_000).samples
    text = Renderer().text(samples).decode()
    golden(text, "golden/metrics.txt")
    assert len([s for family in text_string_to_metric_families(text) for s in family.samples]) == len(samples)
    assert {sample.family for sample in samples} <= set(COLLECTOR.families)


def test_the_states_sum_to_the_time_from_start_to_settled(exporter: Exporter, trained: Any) -> None:
    exporter.start()
    for later in (600_000, 2_000_000, 4_000_000):
        found = exporter.at(trained.processes[0].born + later).values
        seconds = sum(value for key, value in found.items() if key[0] == SECONDS)
        elapsed = (
            found["pyrometer_run_settled_timestamp_seconds", "llama-8b", ""]
            - found["pyrometer_run_start_timestamp_seconds", "llama-8b", ""]
        )
        assert seconds == pytest.approx(elapsed, abs=1e-6)


def test_a_ledger_that_was_killed_goes_on_where_it_was(exporter: Exporter, trained: Any) -> None:
    exporter.start()
    exporter.at(trained.processes[0].born + 2_000_000)
    exporter.start()
    before = exporter.scrape().values
    assert before[SECONDS, "llama-8b", "", "useful"] > 1000, "served from the file, before Prometheus was asked"
    after = exporter.at(trained.now + 90_000).values
    assert after[SECONDS, "llama-8b", "", "useful"] == trained.truth["useful"] / 1000
    assert after[SECONDS, "llama-8b", "", "rework"] == 100.0


def test_the_same_history_read_again_changes_nothing(exporter: Exporter, trained: Any) -> None:
    exporter.start()
    first = exporter.at(trained.now + 90_000).values
    assert exporter.at(trained.now + 90_000).values == first
    exporter.start()
    assert exporter.at(trained.now + 90_000).values == first


def test_a_ledger_that_lost_its_file_makes_it_anew(exporter: Exporter, trained: Any) -> None:
    exporter.start()
    first = exporter.at(trained.now + 90_000).values
    for text in ("", "{}", '{"version": 1, "looked": "x", "books": {}}', '{"version": 2}', "[]"):
        (exporter.state / "ledger.json").write_text(text)
        exporter.start()
        assert exporter.at(trained.now + 90_000).values == first
    assert (exporter.state / "ledger.json.corrupt").exists()


def test_while_prometheus_is_away_the_books_stand_and_it_is_said(exporter: Exporter, trained: Any) -> None:
    exporter.start()
    first = exporter.at(trained.processes[0].born + 2_000_000).values
    exporter.prometheus.error = PartError("econnrefused", "Connection refused")
    away = exporter.at(trained.processes[0].born + 3_000_000)
    assert (away.values, away.downs) == (first, {"prometheus": "econnrefused"})
    exporter.prometheus.error = None
    back = exporter.at(trained.now + 90_000)
    assert back.values[SECONDS, "llama-8b", "", "useful"] == trained.truth["useful"] / 1000
    assert back.downs == {}


def test_an_answer_that_fails_halfway_leaves_the_books_whole(exporter: Exporter, trained: Any) -> None:
    exporter.start()
    first = exporter.at(trained.processes[0].born + 2_000_000).values
    asked = exporter.prometheus.range

    def fails(query: str, start: float, end: float, step: float) -> Any:
        if end * 1000 > trained.processes[0].born + 4_500_000:
            raise PartError("deadline", "no")
        return asked(query, start, end, step)

    exporter.prometheus.range = fails
    found = exporter.at(trained.now + 90_000)
    assert found.downs == {"prometheus": "deadline"}
    assert found.values == first
    exporter.prometheus.range = asked
    assert exporter.at(trained.now + 90_000).values[SECONDS, "llama-8b", "", "useful"] == trained.truth["useful"] / 1000


def test_a_prometheus_without_node_exporters_is_a_reason(exporter: Exporter) -> None:
    exporter.start()
    exporter.prometheus.world.outages.append((0, 1 << 60))
    assert exporter.at(exporter.prometheus.now + 60_000).downs == {"prometheus": "no_data"}


def test_a_file_that_cannot_be_written_costs_no_metrics(exporter: Exporter, trained: Any) -> None:
    (exporter.state / "ledger.json.new").mkdir()
    exporter.start()
    found = exporter.at(trained.now + 90_000)
    assert found.downs == {"state": "eisdir"}
    assert found.values[SECONDS, "llama-8b", "", "useful"] > 0


def test_the_estimated_end_with_and_without_losses(exporter: Exporter, trained: Any) -> None:
    exporter.start("--collector.ledger.target=llama-8b=30e6")
    found = exporter.at(trained.now + 90_000).values
    settled = found["pyrometer_run_settled_timestamp_seconds", "llama-8b", ""]
    tokens = found["pyrometer_run_tokens_total", "llama-8b", ""]
    assert tokens == pytest.approx(trained.high * 4096, rel=0.01)
    left = 30e6 - tokens
    end = {key[3]: value for key, value in found.items() if key[0] == "pyrometer_run_estimated_end_timestamp_seconds"}
    assert end["training"] - settled == pytest.approx(left / 4096, rel=0.01)
    goodput = trained.truth["useful"] / sum(trained.truth.values())
    assert end["elapsed"] - settled == pytest.approx(left / 4096 / goodput, rel=0.03)
    exporter.start("--collector.ledger.target=llama-8b=1e6")
    done = exporter.at(trained.now + 90_000).values
    assert not any(key[0] == "pyrometer_run_estimated_end_timestamp_seconds" for key in done)


def test_only_the_series_that_were_asked_for(exporter: Exporter, trained: Any) -> None:
    exporter.start('--collector.ledger.match=cluster="c1"')
    asked: list[str] = []
    instant = exporter.prometheus.instant
    exporter.prometheus.instant = lambda query, at: asked.append(query) or instant(query, at)
    exporter.at(trained.now)
    assert asked
    assert all('cluster="c1"' in query for query in asked)


@pytest.mark.parametrize("given", ["llama", "=5", "llama=", "llama=x", "llama=-1", "llama=0", "llama=inf", "llama=nan"])
def test_a_wrong_target_is_one_line(given: str) -> None:
    with pytest.raises(UsageError, match="RUN=TOKENS") as caught:
        module.targets([given])
    assert "\n" not in str(caught.value)
    assert module.targets(["a=b=5", "c=15e12"]) == {"a=b": 5.0, "c": 15e12}


@pytest.mark.parametrize(
    "flag", ["match=}", "match=a=b", 'match=a="b"} or x{c="d"', "lookback=0", "lookback=x", "target=x"],
)  # fmt: skip
def test_a_wrong_flag_ends_in_one_line_and_2(flag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flag = f"--collector.ledger.{flag}"
    try:
        code: Any = main([flag, f"--path.state={tmp_path}", "--web.listen-address=127.0.0.1:0", "--no-collector.ufm"])
    except SystemExit as ended:
        code = ended.code
    said = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("time=")]
    assert code == 2
    assert len(said) == 1
    assert said[0].startswith("pyrometer-cluster-exporter: ")


def test_the_file_is_plain_json(exporter: Exporter, trained: Any) -> None:
    exporter.start()
    exporter.at(trained.now + 90_000)
    kept = json.loads((exporter.state / "ledger.json").read_text())
    assert kept["version"] == 1
    assert set(kept["books"]) == {"llama-8b"}
