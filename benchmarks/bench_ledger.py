"""Measure how long the ledger takes for a day of a run: reading Prometheus' answers, and booking every batch.

    python benchmarks/bench_ledger.py

A run of 4 steps/s with a checkpoint every half hour, scraped every 5 s: 345,600 batches a day.
"""

import json
import resource
import time

from pyrometer_exporters.cluster.ledger.facts import Jobs, RunJob, facts_of
from pyrometer_exporters.cluster.ledger.settle import begin, settle
from pyrometer_kit.prometheus import answer

EPOCH = 1_800_000_000
STRETCH, STEP, SCRAPE, SAVE = 1800, 0.25, 5, 10


def stretch(index: int) -> bytes:
    """Return half an hour of the run as Prometheus answers it."""
    start = EPOCH + index * STRETCH
    count = int((STRETCH - SAVE) / STEP)
    ends = [start + (number + 1) * STEP for number in range(count)]
    scrapes = range(start + 1, start + STRETCH, SCRAPE)
    run = {"run": "a", "attempt": "0", "node": "n"}
    rank = {**run, "rank": "0"}

    def series(name: str, labels: dict[str, str], points: list[tuple[float, float]]) -> dict[str, object]:
        return {
            "metric": {"__name__": f"pyrometer_train_{name}", **labels},
            "values": [[at, str(v)] for at, v in points],
        }

    result = [
        series("batch_step", run, [(end, index * count + n) for n, end in enumerate(ends)]),
        series("batch_step_seconds", run, [(end, STEP) for end in ends]),
        series("rank_start_timestamp_seconds", rank, [(at, EPOCH - 20.0) for at in scrapes]),
        series("rank_up", rank, [(at, 1.0) for at in scrapes]),
        series("steps_total", rank, [(at, index * count + (at - start) / STEP) for at in scrapes]),
        series("tokens_total", rank, [(at, 512.0 * (index * count + (at - start) / STEP)) for at in scrapes]),
        series(
            "step_part_seconds_total", {**rank, "part": "checkpoint"}, [(at, float(SAVE * index)) for at in scrapes]
        ),
        series("current_part_seconds", {**rank, "part": "step"}, [(at, 0.1) for at in scrapes]),
    ]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode()


def main() -> None:
    answers = [stretch(index) for index in range(48)]
    began, read, book = time.process_time(), 0.0, None
    for index, body in enumerate(answers):
        before = time.process_time()
        facts = facts_of(answer(body), Jobs({RunJob("a", ""): 8.0}))[RunJob("a", "")]
        read += time.process_time() - before
        until = (EPOCH + (index + 1) * STRETCH - 60) * 1000
        book = book or begin(facts, (EPOCH - 3600) * 1000, until)
        assert book is not None
        settle(book, facts, until)
    total = time.process_time() - began
    assert book is not None
    steps, memory = sum(book.steps.values()), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{steps} batches booked in {total:.1f} s of CPU, {total / steps * 1e6:.0f} us each; {read / total:.0%} reading"
    )
    print(f"one turn (15 s of the run): {total / 5760 * 1000:.1f} ms; memory {memory:.0f} MB")
    print({state: length / 1000 for state, length in book.lengths.items() if length})


if __name__ == "__main__":
    main()
