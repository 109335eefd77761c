"""The train collector as a whole: what it serves on /metrics and /batches."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from pyrometer import ring
from pyrometer_exporters.framework.collector import Context
from pyrometer_exporters.framework.exposition import Renderer
from pyrometer_exporters.framework.metrics import Down, Sample
from pyrometer_exporters.node.train import collector as module
from pyrometer_exporters.node.train.collector import COLLECTOR, TrainCollector
from pyrometer_kit.http_message import Request

Rings = Callable[..., Any]


def collect(collector: TrainCollector) -> tuple[dict[tuple[str, ...], float], list[Down]]:
    items = list(collector.collect(time.monotonic() + 5))
    samples = {
        (i.family.name.removeprefix("pyrometer_train_"), *i.labels): i.value for i in items if isinstance(i, Sample)
    }
    return samples, [i for i in items if isinstance(i, Down)]


def asking(consumer: str = "") -> Request:
    return Request("GET", "/batches", query={"consumer": consumer} if consumer else {}, peer="10.0.0.1")


def batches(
    collector: TrainCollector, consumer: str = "a", *, delivered: bool = True
) -> list[tuple[str, float, float]]:
    reply = collector.batches(asking(consumer))
    found = [
        (s.name.removeprefix("pyrometer_train_batch_"), float(s.value), float(s.timestamp))
        for family in text_string_to_metric_families(reply.body.decode())
        for s in family.samples
    ]
    assert reply.delivered is not None
    reply.delivered(delivered)
    return found


def steps(found: list[tuple[str, float, float]]) -> list[float]:
    return [value for name, value, _ in found if name == "step"]


def scene(rings: Rings, clock: Any) -> Any:
    """Two ranks of eight: rank 0 inside a backward pass, rank 1 between steps on a GPU that nobody knows."""
    first = rings("r0")
    second = rings("r1", rank=1, local_rank=1, gpu="1", uuid="GPU-2", reporting=False, gpu_model="NVIDIA Unheard-Of")
    for n in range(4):
        first.step(1000 + 2 * n, 1001.5 + 2 * n, loss=3.0 - n, flags=ring.TAG_BITS["checkpoint"] if n == 3 else 0)
        second.step(1000 + 2 * n, 1001.75 + 2 * n)
    first.slot(ring.PART_TOTALS_SLOT, 500_000_000)
    first.slot(ring.PART_TOTALS_SLOT + 2, 2_250_000_000)
    for place, value in ((ring.STEP_STARTED_SLOT, 1008e9), (ring.PART_SLOT, 3), (ring.PART_STARTED_SLOT, 1008.5e9)):
        first.slot(place, int(value))
    second.slot(ring.PART_TOTALS_SLOT + ring.PARTS.index("gc"), 500_000_000)
    for place, value in ((ring.GC_PAUSES_SLOT, 2), (ring.GC_PAUSE_TOTAL_SLOT, 480_000_000), (ring.GC_STEP_SLOT, 3)):
        second.slot(place, value)
    clock.now = 1010.0
    return first


def test_golden(collector: TrainCollector, rings: Rings, clock: Any, golden: Callable[[str, str], None]) -> None:
    scene(rings, clock)
    items = collector.collect(time.monotonic() + 5)
    text = Renderer().text(i for i in items if isinstance(i, Sample)).decode()
    text += "\n# /batches?consumer=a\n" + collector.batches(asking("a")).body.decode()
    golden(text, "golden/metrics.txt")


def test_every_sample_is_of_a_declared_family(collector: TrainCollector, rings: Rings, clock: Any) -> None:
    scene(rings, clock)
    served = {i.family for i in collector.collect(time.monotonic() + 5) if isinstance(i, Sample)}
    assert served <= set(COLLECTOR.families)


def test_an_unknown_gpu_has_flops_but_no_mfu(collector: TrainCollector, rings: Rings) -> None:
    rings(gpu_model="NVIDIA Unheard-Of").step(999, 1000)
    samples, _ = collect(collector)
    names = {name for name, _, _ in batches(collector)}
    assert "flops_per_second" in names
    assert "mfu_ratio" not in names
    assert ("flops_total", "llama", "77", "0", "0") in samples
    assert ("peak_flops_per_second", "llama", "77", "0") not in samples
    assert samples["peak_flops_unknown", "llama", "77", "0", "NVIDIA Unheard-Of", "bf16"] == 1


def test_a_log_that_does_not_tell_the_gpus_has_a_reason_and_no_mfu(collector: TrainCollector, rings: Rings) -> None:
    rings(world_size=0, source="log:nanogpt").step(999, 1000)
    samples, _ = collect(collector)
    names = {name for name, _, _ in batches(collector)}
    assert samples["gpus_unknown", "llama", "77", "0"] == 1
    assert not {"mfu_ratio", "flops_per_second"} & names
    assert "steps" in names, "how many a point stands for"


def test_a_given_peak_goes_before_the_table(collector: TrainCollector, rings: Rings) -> None:
    rings(gpu_model="NVIDIA Unheard-Of", peak_flops=1e15).step(998, 1000)
    samples, _ = collect(collector)
    assert samples["peak_flops_per_second", "llama", "77", "0"] == 1e15
    assert not any(key[0] == "peak_flops_unknown" for key in samples)
    assert [v for name, v, _ in batches(collector) if name == "mfu_ratio"] == [pytest.approx(6e15 / 2 / 8 / 1e15)]


def test_counters_are_shares_that_sum_to_the_run(collector: TrainCollector, rings: Rings) -> None:
    for rank in range(8):
        made = rings(f"r{rank}", rank=rank, reporting=rank == 0)
        made.step(999, 1000)
        made.step(1000, 1001, tokens=500_000)
        made.slot(ring.TOKENS_EXTRA_SLOT, -500_000)
        made.slot(ring.FLOPS_EXTRA_SLOT, -3e15, "d")
    samples, _ = collect(collector)
    assert sum(v for k, v in samples.items() if k[0] == "tokens_total") == 1_500_000
    assert sum(v for k, v in samples.items() if k[0] == "flops_total") == pytest.approx(9e15)
    assert samples["steps_total", "llama", "77", "0", "3"] == 2
    assert samples["step_seconds_total", "llama", "77", "0", "3"] == 2


def test_tokens_given_step_by_step_only_are_counted_too(collector: TrainCollector, rings: Rings) -> None:
    made = rings(tokens_per_step=None, flops_per_token=6e9)
    made.step(999, 1000, tokens=800)
    made.slot(ring.TOKENS_EXTRA_SLOT, 800)
    made.slot(ring.FLOPS_EXTRA_SLOT, 800 * 6e9, "d")
    samples, _ = collect(collector)
    assert samples["tokens_total", "llama", "77", "0", "0"] == 100
    assert samples["flops_total", "llama", "77", "0", "0"] == 600e9


@pytest.mark.parametrize("flops", [float("nan"), float("inf"), -1e300])
def test_a_spoiled_sum_is_absent(collector: TrainCollector, rings: Rings, flops: float) -> None:
    rings().slot(ring.FLOPS_EXTRA_SLOT, flops, "d")
    samples, _ = collect(collector)
    assert ("flops_total", "llama", "77", "0", "0") not in samples
    assert samples["tokens_total", "llama", "77", "0", "0"] == 0


def test_the_part_that_a_rank_is_in(collector: TrainCollector, rings: Rings, clock: Any) -> None:
    made = rings()

    def part() -> dict[str, float]:
        samples, _ = collect(collector)
        return {key[-1]: value for key, value in samples.items() if key[0] == "current_part_seconds"}

    clock.advance(5)
    assert part() == {"between": 5}
    made.slot(ring.STEP_STARTED_SLOT, int(1003e9))
    assert part() == {"step": 2}
    made.slot(ring.PART_SLOT, 1 + ring.PARTS.index("checkpoint"))
    made.slot(ring.PART_STARTED_SLOT, int(1004e9))
    assert part() == {"checkpoint": 1}
    made.slot(ring.PART_SLOT, 99)
    assert part() == {"step": 1}
    made.slot(ring.PART_SLOT, 0)
    made.step(1003, 1004.5)
    assert part() == {"between": 0.5}
    made.crash()
    clock.advance(60)
    assert part() == {}, "a process that is gone is in no part"


def test_what_follows_a_part_begins_with_its_end(collector: TrainCollector, rings: Rings, clock: Any) -> None:
    made = rings()
    clock.advance(60)
    made.slot(ring.STEP_STARTED_SLOT, int(1001e9))
    made.slot(ring.PART_STARTED_SLOT, int(1055e9))
    samples, _ = collect(collector)
    assert samples["current_part_seconds", "llama", "77", "0", "0", "step"] == 5, (
        "an evaluation within the step has ended"
    )


@pytest.mark.parametrize(("ticking", "part"), [(ring.NAMED, "step"), (ring.UNNAMED, "between_ticks"), (7, "between")])
def test_the_part_of_a_loop_that_ticks(
    collector: TrainCollector, rings: Rings, clock: Any, ticking: int, part: str
) -> None:
    made = rings()
    made.slot(ring.TICKING_SLOT, ticking)
    clock.advance(5)
    assert collect(collector)[0]["current_part_seconds", "llama", "77", "0", "0", "between"] == 5, (
        "no step has ended yet"
    )
    made.step(1003, 1004)
    made.slot(ring.LONGEST_TICK_SLOT, 2_500_000_000)
    samples, _ = collect(collector)
    assert samples["current_part_seconds", "llama", "77", "0", "0", part] == 1
    assert samples["longest_tick_seconds", "llama", "77", "0", "0"] == 2.5


def test_a_rank_is_up_until_its_process_is_gone_and_absent_after_a_good_end(
    collector: TrainCollector, rings: Rings
) -> None:
    lives, crashed, closed = (rings(f"r{n}", rank=n, reporting=n == 0) for n in range(3))
    crashed.crash()
    closed.close()
    lives.step(999, 1000)
    samples, _ = collect(collector)
    assert {key[-1]: value for key, value in samples.items() if key[0] == "rank_up"} == {"0": 1, "1": 0}
    assert [key[-1] for key in samples if key[0] == "rank_end_timestamp_seconds"] == ["1"]


def test_the_description_is_that_of_the_latest_step(collector: TrainCollector, rings: Rings) -> None:
    made = rings()
    made.step(998, 999)

    def described() -> tuple[str, ...]:
        samples, _ = collect(collector)
        ((_, _, _, _, _, *texts),) = (key for key in samples if key[0] == "run_info")
        return tuple(texts[4:8])

    assert described() == ("512", "1", "4096", "none")
    made.step(999, 1000, global_batch_size=640, recompute=2)
    assert described() == ("640", "1", "4096", "full")
    made.step(999, 1000, sequence_length=8192, recompute=77)
    assert described() == ("512", "1", "8192", "none")


def test_a_closed_run_keeps_its_counters_but_is_no_hang(collector: TrainCollector, rings: Rings) -> None:
    made = rings()
    made.step(999, 1000)
    made.close()
    samples, _ = collect(collector)
    names = {key[0] for key in samples}
    assert "steps_total" in names
    assert not names & {"last_step_timestamp_seconds", "last_step", "current_part_seconds", "rank_up"}


def test_no_folder_is_absent_hardware_and_one_made_later_is_found(collector: TrainCollector, rings: Rings) -> None:
    samples, downs = collect(collector)
    assert {name for name, *_ in samples} == {"batches_left_out_total", "consumers_left_out_total"}
    assert [(down.part, down.reason) for down in downs] == [("rings", "no_rings")]
    assert batches(collector) == []
    rings().step(999, 1000)
    samples, downs = collect(collector)
    assert downs == []
    assert samples["steps_total", "llama", "77", "0", "0"] == 1


def test_each_consumer_once_over_a_restart(context: Context, rings: Rings, clock: Any) -> None:
    made = rings()
    first = TrainCollector(context)
    made.step(999, 1000)
    assert steps(batches(first, "a")) == [100]
    made.step(1000, 1001)
    assert steps(batches(first, "b")) == [100, 101]
    assert steps(batches(first, "a", delivered=False)) == [101]
    first.close()
    clock.offset -= 100
    clock.advance(5)
    made.step(1001, 1002)
    second = TrainCollector(context)
    a, b = batches(second, "a"), batches(second, "b")
    assert steps(a) == [101, 102]
    assert steps(b) == [102]
    assert steps(batches(second, "b")) == [102], "the newest again, so that the series doesn't seem to end"
    for found in (a, b):
        stamps = [at for name, _, at in found if name == "step"]
        assert stamps == sorted(set(stamps))
    second.close()


def test_after_a_crash_a_batch_that_comes_again_comes_with_its_timestamp(
    context: Context, rings: Rings, clock: Any
) -> None:
    """An answer is known to be taken when the next request comes: what lies between is served again."""
    made = rings()
    first = TrainCollector(context)
    for n in range(3):
        made.step(999 + n, 1000 + n)
    served = first.batches(asking("a"))  # taken, but the exporter is killed before it can know
    first._stop.set()
    clock.offset += 0.004  # the two clocks are never read at the same moment
    second = TrainCollector(context)
    again = second.batches(asking("a"))
    assert again.body == served.body
    clock.offset += 5  # the clock is set: what has been read keeps its time
    made.step(1002, 1003)
    stamps = [at for name, _, at in batches(second) if name == "step"]
    assert stamps[-1] - stamps[-2] == pytest.approx(6, abs=0.01)
    second.close()
    first.close()


def test_the_newest_point_is_served_again_for_ten_minutes(collector: TrainCollector, rings: Rings, clock: Any) -> None:
    made = rings(warmup_steps=0)
    made.step(999, 1000, flags=ring.TAG_BITS["eval"])
    batches(collector)
    clock.advance(500)
    made.step(1499, 1500)
    assert ("tag", 1.0) in {(name, value) for name, value, _ in batches(collector)}
    clock.advance(110)
    again = batches(collector)
    assert steps(again) == [101]
    assert "tag" not in {name for name, _, _ in again}, "Prometheus would refuse it one day, in each scrape"


def test_without_a_state_folder_it_works_and_forgets(context: Context, rings: Rings) -> None:
    rings().step(999, 1000)
    bare = Context(context.flags, context.clock, context.sysfs, context.procfs, context.rings, None)
    for _ in range(2):
        made = TrainCollector(bare)
        assert steps(batches(made)) == [100]
        made.close()


def test_a_poll_that_hangs_costs_a_deadline_not_the_caller(
    collector: TrainCollector, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyrometer_exporters.framework.outcome import PartError

    collector._lock.acquire()
    began = time.monotonic()
    with pytest.raises(PartError) as caught:
        list(collector.collect(time.monotonic() + 0.1))
    collector._lock.release()
    assert caught.value.reason == "deadline"
    assert time.monotonic() - began < 10


def test_the_thread_follows_rings_between_scrapes_and_survives_what_goes_wrong(
    context: Context, rings: Rings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "POLL_SECONDS", 0.02)
    made = TrainCollector(context)
    real = made._tracker.poll
    calls = []

    def poll() -> None:
        calls.append(1)
        if len(calls) == 2:
            raise ValueError("unforeseen")
        real()

    monkeypatch.setattr(made._tracker, "poll", poll)
    rings().step(999, 1000)
    deadline = time.monotonic() + 5
    while len(calls) < 5 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(calls) >= 5
    made.close()
    assert "reading the rings failed" in caplog.text


def test_with_the_real_client(context: Context, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyrometer
    from pyrometer_kit.clock import SystemClock

    real = Context(context.flags, SystemClock(), context.sysfs, context.procfs, folder, context.state)
    collector = TrainCollector(real)
    run = pyrometer.start("live", rings=str(folder), job_id="77", tokens_per_step=10, flops_per_token=2.0, world_size=1)
    for n in range(5):
        with run.step(), run.part("data"):
            run.record(loss=float(n), tokens=10 + n)
    samples, _ = collect(collector)
    assert samples["tokens_total", "live", "77", "0", "0"] == 60
    assert samples["flops_total", "live", "77", "0", "0"] == 120
    found = batches(collector)
    assert [v for name, v, _ in found if name == "loss"] == [0, 1, 2, 3, 4]
    assert all(abs(at - time.time()) < 60 for _, _, at in found)
    run.close()
    collector.close()


def test_what_the_job_expects_is_served_as_it_says(collector: TrainCollector, rings: Rings) -> None:
    rings(expected_mfu=0.42).step(998, 1000)
    samples, _ = collect(collector)
    assert samples["expected_mfu_ratio", "llama", "77", "0"] == 0.42


def test_a_logs_share_is_the_whole(collector: TrainCollector, rings: Rings) -> None:
    """One ring stands for all ranks of the run."""
    rings("client").step(998, 1000)
    per_rank = collect(collector)[0]["tokens_total", "llama", "77", "0", "0"]
    rings("log", run="logged", source="log:nemo").step(998, 1000)
    samples, _ = collect(collector)
    assert samples["tokens_total", "logged", "77", "0", "0"] == 8 * per_rank
