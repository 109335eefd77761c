"""Rules for rulers with limits (Mimir and what is hosted on it) and for fewer evaluations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from pyrometer_dashboards.main import main
from pyrometer_dashboards.rule_groups import packed, slower
from pyrometer_dashboards.rule_stages import NotSplitError

RULES = Path(__file__).resolve().parents[2] / "alert_rules"
# Mimir's defaults: -ruler.max-rules-per-rule-group, -ruler.max-rule-groups-per-tenant; half for everybody else.
MOST_RULES, MOST_GROUPS = 20, 70 // 2


def _groups(folder: Path) -> list[dict[str, Any]]:
    paths = sorted(folder.glob("*.rules.yaml"))
    return [group for path in paths for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]]


def _rules(groups: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return every rule with its group's interval, in an order that has nothing to do with groups."""
    return sorted((group["interval"], str(rule)) for group in groups for rule in group["rules"])


def test_the_rules_are_written_within_mimirs_default_limits(promtool: Callable[..., None], tmp_path: Path) -> None:
    assert main(["rules", str(RULES), str(tmp_path), "--limits=mimir"]) == 0
    groups = _groups(tmp_path)
    assert max(len(group["rules"]) for group in groups) <= MOST_RULES
    assert len({group["name"] for group in groups}) == len(groups) <= MOST_GROUPS
    assert _rules(groups) == _rules(_groups(RULES))
    promtool("check", "rules", *sorted(tmp_path.glob("*.rules.yaml")))


def test_rules_of_one_group_stay_together_and_in_their_order() -> None:
    written = packed({path.name: path.read_text(encoding="utf-8") for path in RULES.glob("*.rules.yaml")})
    after = [
        [str(rule) for rule in group["rules"]] for text in written.values() for group in yaml.safe_load(text)["groups"]
    ]
    for group in _groups(RULES):
        before = [str(rule) for rule in group["rules"]]
        for begin in range(0, len(before), MOST_RULES):
            part = before[begin : begin + MOST_RULES]
            assert any(part == rules[rules.index(part[0]) :][: len(part)] for rules in after if part[0] in rules)


def test_a_long_group_whose_rules_share_text_is_not_cut() -> None:
    rules = "".join(f"      - record: a:b:c{number}\n        expr: up\n" for number in range(21))
    text = (
        f"groups:\n  - name: long\n    interval: 5s\n    rules:\n      - record: a:b:c\n        expr: &up up\n{rules}"
    )
    with pytest.raises(NotSplitError, match="long: it has more than 20 rules, which share text"):
        packed({"a.rules.yaml": text})


def test_every_group_states_its_interval() -> None:
    assert [group["name"] for group in _groups(RULES) if "interval" not in group] == []


def test_no_group_is_evaluated_more_often_than_is_asked_for(tmp_path: Path) -> None:
    assert main(["rules", str(RULES), str(tmp_path), "--evaluation-interval=30s"]) == 0
    assert {group["interval"] for group in _groups(tmp_path)} == {"30s", "1m", "5m", "10m"}
    assert slower("    interval: 5m\n    interval: 10s\n", 30) == "    interval: 5m\n    interval: 30s\n"


@pytest.mark.parametrize("text", ["15m", "0", "-5", "soon"])
def test_an_interval_that_is_no_number_of_seconds_is_one_line(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["rules", "a", "b", f"--evaluation-interval={text}"])
    error = capsys.readouterr().err
    assert (ended.value.code, error.count("\n"), "is not a number of seconds" in error) == (2, 1, True)


def test_rules_are_written_for_victoriametrics_operator(tmp_path: Path) -> None:
    assert main(["rules", str(RULES), str(tmp_path), "--vm-rules", "--label=team=hpc"]) == 0
    listed = yaml.safe_load((tmp_path / "kustomization.yaml").read_text(encoding="utf-8"))["resources"]
    objects = [yaml.safe_load((tmp_path / name).read_text(encoding="utf-8")) for name in listed]
    assert {(each["apiVersion"], each["kind"]) for each in objects} == {
        ("operator.victoriametrics.com/v1beta1", "VMRule")
    }
    assert _rules([group for each in objects for group in each["spec"]["groups"]]) == _rules(_groups(RULES))
