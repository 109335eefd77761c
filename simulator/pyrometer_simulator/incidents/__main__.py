"""Generate incidents, let the real service watch them for 15 minutes, and score its answers.

``python -m pyrometer_simulator.incidents --seeds 1-3 --kinds hot_gpu,flapping_link``; ``--help`` for the rest.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import logging
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pyrometer_kit.http_client import get_json
from pyrometer_simulator.incidents import report, signatures
from pyrometer_simulator.incidents.faults import Faults
from pyrometer_simulator.incidents.herrings import add_herrings
from pyrometer_simulator.incidents.metrics import series_of
from pyrometer_simulator.incidents.remote_write import write
from pyrometer_simulator.incidents.rules import Evaluation, Firing, Rule, load
from pyrometer_simulator.incidents.score import MOMENTS, VERDICTS, Score, score
from pyrometer_simulator.incidents.watch import Watched, watch
from pyrometer_simulator.incidents.world import BASE, KINDS, WATCH, Catalogue, Truth, World
from pyrometer_simulator.stack import find_stack
from pyrometer_simulator.stack.prometheus import running

SEVERITIES = ("mild", "medium", "strong")
SERVICE = Path(__file__).parents[3] / "alerting" / "pyrometer_alerting"
WORLDS = 6  # in one Prometheus


def catalogue() -> Catalogue:
    """Return all kinds, in the order of their modules."""
    for module in ("kinds_gpu", "kinds_fabric", "kinds_run", "kinds_time"):
        importlib.import_module(f"pyrometer_simulator.incidents.{module}")
    return KINDS


@dataclass(frozen=True)
class Case:
    """One incident to generate."""

    kind: str
    seed: int
    severity: str
    interval: float = 5.0
    nodes: int | None = None


def build(case: Case) -> tuple[World, Truth, list[str]]:
    """Return the world of a case, the truth about it and its red herrings."""
    kinds = catalogue()
    world = World(case.seed, case.kind, case.severity, nodes=case.nodes, interval=case.interval)
    herrings = add_herrings(world)
    truth = kinds.kinds[case.kind](world)
    world.truth_benign = truth.benign
    return world, truth, herrings


@contextlib.contextmanager
def prometheus(folder: Path) -> Iterator[str]:
    """Run a Prometheus that takes samples of any time, and yield its address."""
    configuration = folder / "prometheus.yaml"
    configuration.write_text("storage: {tsdb: {out_of_order_time_window: 30d}}\n", encoding="utf-8")

    def flags(_port: int) -> Sequence[str]:
        return (
            f"--config.file={configuration}",
            f"--storage.tsdb.path={folder / 'data'}",
            "--web.enable-remote-write-receiver",
            "--query.max-samples=500000000",
            "--query.timeout=5m",
            "--log.level=error",
        )

    with running(find_stack().prometheus, flags, folder / "log") as url:
        yield url


def play(
    cases: Sequence[Case], *, every: float = 0.0, show: bool = False, faults: Faults | None = None
) -> Iterator[tuple[World, Truth, Score, Watched]]:
    """Generate cases of one interval together in one Prometheus, and watch each."""
    with tempfile.TemporaryDirectory() as folder, prometheus(Path(folder)) as url:
        started = time.perf_counter()
        built = [build(case) for case in cases]
        samples = 0
        for world, _truth, _herrings in built:
            batch, _attempts = series_of(world)
            samples += batch.samples
            write(url, batch)
        loaded = time.perf_counter()
        firings = evaluate(url, cases[0].interval, [world for world, _truth, _herrings in built])
        if show:
            spent = f"{loaded - started:.1f} s to load, {time.perf_counter() - loaded:.1f} s for the rules"
            print(f"# {len(cases)} incidents, {samples} samples: {spent}", file=sys.stderr, flush=True)
        for world, truth, herrings in built:
            layout, begin = world.layout, world.at - 300.0
            watched = watch(
                url,
                layout.cluster,
                firings,
                interval=layout.interval,
                begin=begin,
                lasts=WATCH,
                ends=world.end - layout.interval,
                every=every,
                faults=faults,
            )
            yield world, truth, score(world, truth, watched, herrings), watched


def evaluate(url: str, interval: float, worlds: Sequence[World]) -> list[Firing]:
    """Evaluate the project's rules over the incidents in a Prometheus and return what fired.

    The service looks at the curves with what rules recorded; the rules that read what it saw come last.
    """
    needed = [path.read_text(encoding="utf-8") for path in SERVICE.rglob("*.py")]
    names = set(get_json(f"{url}/api/v1/label/__name__/values", seconds=30)["data"])
    evaluation = Evaluation(url, BASE, max(world.end for world in worlds))
    rules = load(interval, needed=needed)
    later = readers(rules, signatures.NAME)
    evaluation.run([rule for rule in rules if rule not in later], names)
    signatures.write_signatures(url, worlds)
    evaluation.run(later, names | {signatures.NAME})
    return evaluation.firings


def readers(rules: Sequence[Rule], name: str) -> list[Rule]:
    """Return the rules that read a series, or what such a rule records, in their order."""
    read, found = {name}, list[Rule]()
    for rule in rules:
        if rule.reads & read:
            found.append(rule)
            read |= set() if rule.alert else {rule.name}
    return found


def cases_of(kinds: Sequence[str], seeds: Sequence[int], nodes: int | None) -> list[Case]:
    """Return one incident of each kind and seed: the severities take turns, every fifth is scraped each 15 s."""
    return [
        Case(kind, seed, SEVERITIES[(seed + place) % 3], 15.0 if (seed + place) % 5 == 0 else 5.0, nodes)
        for seed in seeds
        for place, kind in enumerate(catalogue().kinds)
        if kind in kinds
    ]


def grouped(cases: Sequence[Case]) -> Iterator[list[Case]]:
    """Yield the cases in groups that share a Prometheus."""
    for interval in sorted({case.interval for case in cases}):
        mine = [case for case in cases if case.interval == interval]
        yield from (mine[place : place + WORLDS] for place in range(0, len(mine), WORLDS))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    flags = _parser().parse_args(argv)
    logging.basicConfig(level=logging.ERROR)
    known = list(catalogue().kinds)
    kinds = [kind for kind in known if not flags.kinds or kind in flags.kinds.split(",")]
    if flags.kinds and (unknown := set(flags.kinds.split(",")) - set(known)):
        print(f"no such kind: {', '.join(sorted(unknown))}; known are: {', '.join(known)}", file=sys.stderr)
        return 2
    scores = [read_score(line) for path in flags.read for line in path.read_text(encoding="utf-8").splitlines()]
    cases = [] if flags.read else cases_of(kinds, seeds_of(flags.seeds), flags.nodes)
    faults = Faults(flags.prometheus_delay, flags.prometheus_failures)
    for group in grouped(cases):
        for _world, _truth, each, watched in play(group, every=flags.every, show=flags.verbose, faults=faults):
            scores.append(each)
            print(json.dumps(asdict(each)) if flags.json else line_of(each), flush=True)
            if flags.messages:
                begin = watched.webhook or 0
                print("\n".join(f"  {call.at - begin:7.1f} {call.method} {call.text}" for call in watched.calls))
    if not flags.json:
        print(summary(scores))
    if flags.write:
        report.write(flags.write, scores, how_of(scores, flags.every), catalogue().source)
    return 0


def how_of(scores: Sequence[Score], every: float) -> str:
    """Return how the figures were made, for the page."""
    counts = Counter(each.seed for each in scores)
    seeds = " and ".join(f"{count} of seed {seed}" for seed, count in sorted(counts.items()))
    pace = f"a look each {every:.0f} s after the first minute"
    if not every:
        pace = "at the service's own pace (a look each 10 s for ten minutes, then each minute)"
    return f"{len(scores)} incidents of {len({each.kind for each in scores})} kinds: {seeds}, {pace}."


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m pyrometer_simulator.incidents", description=__doc__)
    parser.add_argument("--seeds", default="1", help="a number or a range such as 1-5 (default: 1)")
    parser.add_argument("--kinds", default="", help="kinds with commas between them (default: all)")
    parser.add_argument("--nodes", type=int, help="the cluster's size (default: 4 to 64, at random)")
    parser.add_argument(
        "--every", type=float, default=0.0, help="least seconds between looks after the first minute (default: 0)"
    )
    parser.add_argument(
        "--prometheus-delay", type=float, default=0.0, metavar="SECONDS", help="mean time of a query (default: 0)"
    )
    parser.add_argument(
        "--prometheus-failures", type=float, default=0.0, metavar="SHARE", help="queries without an answer (default: 0)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON document for each incident")
    parser.add_argument(
        "--read", type=Path, nargs="+", default=[], metavar="FILE", help="read scores of --json instead of playing"
    )
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the tables into this page")
    parser.add_argument("--messages", action="store_true", help="print what was sent to Slack")
    parser.add_argument("--verbose", action="store_true", help="say how long each stage takes")
    return parser


def seeds_of(text: str) -> range:
    """Return the seeds of a range such as ``3`` or ``1-5``."""
    first, _dash, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def read_score(line: str) -> Score:
    """Return the score in a line of ``--json``."""
    raw = json.loads(line)
    pairs = {name: tuple(tuple(each) for each in raw[name]) for name in ("confidences", "answers")}
    rows = {name: tuple(raw[name]) for name in ("moments", "untrue", "herrings")}
    return Score(**{**raw, **pairs, **rows})


def line_of(each: Score) -> str:
    """Return a score as one line."""
    first = "never" if each.first_right is None else f"{each.first_right:.1f} s"
    answers = "; ".join(f"{at:.0f}s {said}" for at, said in each.answers[:6])
    return (
        f"{each.kind:22} {each.seed:4} {each.severity:6} {each.watch:8} {' '.join(each.moments)} first right {first}, "
        f"{each.changes} changes, {each.calls} calls, {each.seconds} s; truth {each.truth}: {answers}"
        + "".join(f"\n    untrue: {sentence}" for sentence in each.untrue[:5])
    )


def summary(scores: Sequence[Score]) -> str:
    """Return the totals."""
    total = max(len(scores), 1)
    lines = [_tally("whole watch", Counter(each.watch for each in scores), total)]
    for place, moment in enumerate(MOMENTS):
        lines.append(_tally(f"{moment / 60:.0f} min", Counter(each.moments[place] for each in scores), total))
    firsts = sorted(each.first_right for each in scores if each.first_right is not None)
    if firsts:
        lines.append(f"first right: p50 {firsts[len(firsts) // 2]:.1f} s of {len(firsts)}")
    calls = [each.calls for each in scores]
    lines.append(f"calls in ten minutes: {report.half_and_most(calls)}" if calls else "")
    lines.append(f"incidents with an untrue sentence: {sum(bool(each.untrue) for each in scores)}")
    return "\n".join(lines)


def _tally(name: str, counts: Counter[str], total: int) -> str:
    return f"{name:12}" + ", ".join(f"{said} {counts[said]} ({100 * counts[said] / total:.0f} %)" for said in VERDICTS)


if __name__ == "__main__":
    sys.exit(main())
