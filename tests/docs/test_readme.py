"""The README: short, and each of its figures is that of the page it links to."""

from __future__ import annotations

import re
from pathlib import Path

from pyrometer_simulator.stack.versions import OLDEST_ALERTMANAGER, OLDEST_PROMETHEUS

ROOT = Path(__file__).parents[2]
README = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
# This machine, and the services that somebody who gives a token or a key has it from.
HOSTS = {"127.0.0.1", "slack.com", "events.pagerduty.com", "api.opsgenie.com"}
# Documentation, examples in help texts, and names of schemas.
NOT_ASKED = {
    "10.0.0.1", "HOST", "adaptivecards.io", "desk.example", "developer.pagerduty.com", "docs.nvidia.com",
    "docs.opsgenie.com", "evil.example", "example.com", "github.com", "me", "ufm", "www.standardwebhooks.com",
}  # fmt: skip


def page(name: str, *patterns: str) -> list[str]:
    """Return the first group of each pattern in a page of docs."""
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    found = [re.search(pattern, text) for pattern in patterns]
    assert None not in found, patterns[found.index(None)]
    return [match[1] for match in found if match is not None]


def test_how_often_it_is_right_is_what_the_pages_measured() -> None:
    incidents, right, certain, wrong = page(
        "diagnosis.md",
        r"(\d+) incidents of \d+ kinds: ", r"\| right \|.* (\d+) \(\S+ %\) \|\n", r"\| certain \| (\d+) ",
        r"\| certain \|.* (\d+) \(\S+ %\) \|\n",
    )  # fmt: skip
    assert f"On {incidents} simulated incidents of {incidents} published kinds" in README
    assert f"right over the whole watch in {right}, and none of the {certain} statements" in README
    assert wrong == "0"
    machines, events, accused, losses, named = page(
        "zoo.md",
        r"(\d+) machines: ",
        r"(\d+) events, ",
        r"events, (\d+) verdicts",
        r"; (\d+) losses",
        r"losses, (\d+) of",
    )
    assert f"On {machines} whole machines nothing healthy was accused in {events} events" in README
    assert f"{named} of {losses} planted losses were named" in README
    assert accused == "0"


def test_what_it_costs_is_what_the_pages_measured() -> None:
    (step,) = page("performance.md", r"one step / .*?\| (\S+ µs)")
    core, memory = page(
        "performance.md", r"15 s: exporter in all.*\| \d \| \S+ \| (\S+) \|", r"\| RSS, MB \| \d \| \S+ \| (\d+)"
    )
    assert f"A training step: [{step}]" in README
    assert f"every 15 s: {core} % of a core, {memory} MB" in README
    series, memory_kb, cpu_us, sample = page(
        "sizing.md", r"series = nodes x ([\d,]+)", r"Take half as much again.*: (\S+) kB",
        r"samples/s x \S+ to (\S+) us", r"bytes a sample: (\S+) in Prometheus",
    )  # fmt: skip
    stored = 16 * int(series.replace(",", ""))
    samples = stored / 15
    assert f"of 16 such nodes: {round(stored, -3):,} series" in README
    assert f"{0.1 + stored * float(memory_kb) / 1e6:.2f} GB of Prometheus' memory" in README
    assert (
        f"{samples * float(cpu_us) / 1e6:.2f} cores and {samples * 86400 * float(sample) / 1e9:.1f} GB of disk"
        in README
    )


def test_the_versions_are_those_that_are_supported() -> None:
    (grafana,) = page("stability.md", r"\| Grafana \| (\S+) and newer")
    prometheus, alertmanager = (".".join(map(str, oldest)) for oldest in (OLDEST_PROMETHEUS, OLDEST_ALERTMANAGER))
    assert f"Prometheus {prometheus}, Alertmanager {alertmanager}, Grafana {grafana}, or newer" in README


def test_no_program_names_a_host_that_its_user_did_not_name() -> None:
    named = {
        host
        for package in (
            "kit/pyrometer_kit",
            "client/pyrometer",
            "exporters/pyrometer_exporters",
            "alerting/pyrometer_alerting",
        )
        for path in (ROOT / package).rglob("*.py")
        for host in re.findall(r"https?://([A-Za-z0-9.-]*[A-Za-z0-9])", path.read_text(encoding="utf-8"))
    }
    assert named <= HOSTS | NOT_ASKED
