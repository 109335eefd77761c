"""The page about the diagnosis: confusion by kind, calibration, time to the right answer, messages."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from pyrometer_alerting.channel.card import NOT_PROVEN
from pyrometer_simulator.incidents.score import MOMENTS, RIGHT, SILENT, VERDICTS, WRONG, Score

BEGIN, END = "<!-- begin generated -->\n", "<!-- end generated -->\n"
CONFIDENCES = {"certain": 98, "likely": 80, NOT_PROVEN: 0}
SHOWN = (
    "hot_gpu", "power_brake_node", "rack_power_limit", "flapping_link", "leaf_switch", "cpu_neighbour", "data_loading",
    "garbage_collection", "silent_rank", "lost_gpu",
)  # fmt: skip


def write(page: Path, scores: Sequence[Score], how: str, sources: dict[str, str]) -> None:
    """Put the generated part into the page; how the figures were made is said in `how`."""
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    lines = [*_totals(scores, how), "", *_calibration(scores), "", *_kinds(scores, sources), "", *_messages(scores), ""]
    page.write_text(before + BEGIN + "\n".join(lines) + END + rest.partition(END)[2], encoding="utf-8")


def _percent(count: int, of: int) -> str:
    return f"{count} ({100 * count / of:.1f} %)" if of else "-"


def half_and_most(counts: Sequence[int]) -> str:
    """Return the median and the highest of counts in words."""
    return f"p50 {sorted(counts)[len(counts) // 2]}, most {max(counts)}"


def _totals(scores: Sequence[Score], how: str) -> Iterator[str]:
    alerted = [each for each in scores if SILENT not in each.moments]
    yield how
    yield ""
    yield "| verdict | " + " | ".join(f"{moment / 60:.0f} min" for moment in MOMENTS) + " | the whole watch |"
    yield "|---|" + "---|" * (len(MOMENTS) + 1)
    for verdict in VERDICTS:
        at = [Counter(each.moments[place] for each in scores)[verdict] for place in range(len(MOMENTS))]
        whole = sum(each.watch == verdict for each in scores)
        yield f"| {verdict} | " + " | ".join(_percent(count, len(scores)) for count in (*at, whole)) + " |"
    yield ""
    right = sum(each.watch == RIGHT for each in alerted)
    share = _percent(right, len(alerted))
    yield f"Where an alert fired, or none was due ({len(alerted)}), {share} are right over the whole watch."
    yield from _times(scores)


def _times(scores: Sequence[Score]) -> Iterator[str]:
    firsts = sorted(each.first_right for each in scores if each.first_right is not None)
    if firsts:
        half, most = (firsts[int(share * (len(firsts) - 1))] for share in (0.5, 0.9))
        yield f"From the webhook to the right first cause: p50 {half:.1f} s, p90 {most:.1f} s (of {len(firsts)})."
    calls = [each.calls for each in scores if each.webhook is not None]
    if calls:
        few = _percent(sum(each <= 6 for each in calls), len(calls))
        yield f"Calls to Slack on the run in ten minutes: {half_and_most(calls)}; 6 or fewer in {few}."
    beside = [each.extra["evidence_calls"] for each in scores if "evidence_calls" in each.extra]
    if beside:
        yield f"Beside them, on the evidence, which calls nobody: {half_and_most(beside)}."
    pings = [each.extra["pings"] for each in scores if "pings" in each.extra]
    if pings:
        reds = sum(len(each.extra["harmless_reds"]) for each in scores if "harmless_reds" in each.extra)
        seen = sum(each.extra["seen"] for each in scores if "seen" in each.extra)
        yield (
            f"Posts and replies, which ping, also on other parts: {sum(pings)}, {half_and_most(pings)}; {seen} that the"
            " channel sees, the others in a thread."
        )
        yield f"Red messages on parts of which no run or job was slower: {reds}."
    moved, untrue = sum(each.changes > 0 for each in scores), sum(bool(each.untrue) for each in scores)
    yield f"The part in first place was replaced by another in {_percent(moved, len(scores))} of the incidents."
    yield f"A sentence that the data contradict was in {_percent(untrue, len(scores))}."
    longest = [each.extra["words"] for each in scores if each.extra.get("words")]
    if longest:
        yield f"Words of the longest card of each incident: {half_and_most(longest)}."


def _calibration(scores: Sequence[Score]) -> Iterator[str]:
    said = Counter(pair for each in scores for pair in each.confidences)
    yield "### Confidence"
    yield ""
    yield "The sureness that the card states, at each of the four moments."
    yield ""
    yield "| said | share | goal | right | coarse | wrong |"
    yield "|---|---|---|---|---|---|"
    for confidence, goal in CONFIDENCES.items():
        of = sum(count for (name, _verdict), count in said.items() if name == confidence)
        shares = [_percent(said[confidence, verdict], of) for verdict in (RIGHT, "coarse", WRONG)]
        said_of = _percent(of, said.total())
        yield f"| {confidence} | {said_of} | {f'>= {goal} %' if goal else ''} | " + " | ".join(shares) + " |"


def _kinds(scores: Sequence[Score], sources: dict[str, str]) -> Iterator[str]:
    yield "### By kind"
    yield ""
    yield "The whole watch, and the median time to the right first cause."
    yield ""
    yield "| kind | from | " + " | ".join(VERDICTS) + " | first right |"
    yield "|---|---|" + "---|" * (len(VERDICTS) + 1)
    for kind in sorted({each.kind for each in scores}):
        mine = [each for each in scores if each.kind == kind]
        counts = Counter(each.watch for each in mine)
        firsts = sorted(each.first_right for each in mine if each.first_right is not None)
        first = f"{firsts[len(firsts) // 2]:.1f} s" if firsts else ""
        cells = " | ".join(str(counts[verdict] or "") for verdict in VERDICTS)
        yield f"| `{kind}` | {sources.get(kind, '')} | {cells} | {first} |"


def _messages(scores: Sequence[Score]) -> Iterator[str]:
    yield "### Messages"
    yield ""
    yield "Card and thread as they stood in the channel a minute after the first alert on the run, as plain text."
    for kind in SHOWN:
        found = next((each for each in scores if each.kind == kind and each.extra.get("message")), None)
        if found is not None:
            culprit = " or ".join(re.findall(r"'([^']+)'", found.truth))
            yield from ("", f"`{kind}`, {found.severity}, the culprit is {culprit}:", "")
            yield from (f"    {line}".rstrip() for line in str(found.extra["message"]).splitlines())
