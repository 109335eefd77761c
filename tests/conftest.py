"""Settings and fixtures of every test; property tests have no deadline, as they are not about the machine's speed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from pyrometer_simulator.stack import Stack, StackError, find_stack
from pyrometer_simulator.stack.promtool import objections

ROOT = Path(__file__).resolve().parents[1]

settings.register_profile("pyrometer", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("pyrometer")

# With --dist=loadfile a file's tests stay together, as they share what is dear. The cases of these share nothing
# dear, and one process would be at them minutes after the others.
APART = (
    "tests/alert_rules/test_situations.py::test_a_situation_wakes_whom_it_should",
    "tests/alert_rules/test_rules.py::test_the_rules_pass_their_tests",
)
# Files that take longest, in order: begun first, nobody waits for them at the end.
FIRST = (
    "tests/simulator/incidents/test_live_gpu.py",
    "tests/simulator/incidents/test_live_link.py",
    "tests/e2e/test_demo.py",
    "tests/dashboards/test_real_prometheus.py",
    "tests/e2e/test_hangs_without_client.py",
    "tests/e2e/test_beside_their_stack.py",
    "tests/e2e/test_hang_message.py",
    "tests/kit/test_both_services.py",
    "tests/alerting/test_hostile.py",
    "tests/alerting/incidents/test_alertmanager_truth.py",
    "tests/exporters/commands/gpu_check/test_gpu_check.py",
    "tests/alerting/app/test_service.py",
    "tests/dashboards/test_first_row.py",
    "tests/dashboards/test_incident_totals.py",
    "tests/dashboards/test_incidents.py",
    "tests/alerting/diagnosis/test_situations.py",
    "tests/alerting/diagnosis/test_signature.py",
    "tests/alerting/diagnosis/test_drops.py",
    "tests/alerting/test_chaos.py",
    "tests/dashboards/test_proofs.py",
    "tests/exporters/framework/test_service.py",
    "tests/exporters/commands/doctor/test_field_report.py",
    "tests/simulator/incidents/test_incidents.py",
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the tests for several processes: FIRST, then all other files with APART's cases evenly between them."""
    if not hasattr(config, "workerinput"):
        return
    of = {item: item.nodeid.partition("::")[0] for item in items}
    apart = [item for item in items if _is_apart(item.nodeid)]
    files = list(dict.fromkeys(file for file in of.values() if file not in FIRST))
    place = {file: float(number) for number, file in enumerate([*FIRST, *files])}
    gap = len(files) / max(1, len(apart))
    spread = {item: len(FIRST) + number * gap for number, item in enumerate(apart)}
    items.sort(key=lambda item: spread.get(item, place[of[item]]))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Return the scheduler for --dist=loadfile: by file but for APART, in the order of the tests."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Spread(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return nodeid if _is_apart(nodeid) else str(super()._split_scope(nodeid))

    config.option.loadscopereorder = False  # else the files with most tests, and not those that take longest, are first
    return Spread(config, log)


def _is_apart(nodeid: str) -> bool:
    return nodeid.partition("[")[0] in APART


@pytest.fixture(scope="session")
def stack() -> Stack:
    """Return the real Prometheus, Alertmanager and their tools; skip the test where they can't be had."""
    try:
        return find_stack(lambda _: None)
    except StackError as error:
        pytest.skip(str(error))


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """Show all that a tool printed where nothing was expected, such as promtool's ``exp`` and ``got``."""
    if isinstance(left, str) and op == "==" and right == "":
        return ["nothing was expected:", *left.splitlines()]
    return None


@pytest.fixture(scope="session")
def promtool(stack: Stack) -> Callable[..., None]:
    """Return a call of promtool that fails the test with promtool's own words: what it expected, and what it got."""

    def call(*arguments: str | Path) -> None:
        if complaint := objections(stack.promtool, *arguments):
            pytest.fail(complaint, pytrace=False)

    return call


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Return a comparison of a text with a golden file beside the test; PYROMETER_UPDATE_GOLDEN=1 writes the file."""

    def compare(text: str, name: str) -> None:
        path = request.path.parent / name
        if os.environ.get("PYROMETER_UPDATE_GOLDEN"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        folder = request.path.parent.relative_to(ROOT)
        assert text == path.read_text(encoding="utf-8"), (
            f"if {name} shall change: PYROMETER_UPDATE_GOLDEN=1 .venv/bin/pytest {folder}, and read the difference"
        )

    return compare
