"""The policy file: a full one is read, and each fault is one line that names the place."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyrometer_alerting.app import commands, main
from pyrometer_alerting.policy.rules import KubernetesSettings, Policy, SlurmSettings, load
from pyrometer_kit.errors import UsageError

GOOD = """\
mode: on
limits: {per-hour: 2, percent: 5, keep: 2}
clusters:
  a: {slurm: {scontrol: /usr/bin/scontrol}}
  b: {kubernetes: {url: "https://10.0.0.1:6443/", token-file: /t, ca-file: /c, pool: pool}}
rules:
  - {alert: GpuLost|GpuRowRemapFailed, for: 5m, do: drain}
  - {check: "gpu_.*", do: ask}
  - {cause: throttling, confidence: medium, do: webhook}
webhook: {url: "https://desk.example/x"}
back: {tests: [nccl, dcgm], do: return}
"""


def written(folder: Path, content: str) -> Path:
    path = folder / "policy.yaml"
    path.write_text(content)
    return path


def test_a_whole_file_is_read(tmp_path: Path) -> None:
    policy = load(written(tmp_path, GOOD))
    assert policy.is_on
    assert (policy.limits.per_hour, policy.limits.percent, policy.limits.keep) == (2, 5.0, 2)
    assert policy.clusters["a"] == SlurmSettings("/usr/bin/scontrol")
    assert isinstance(policy.clusters["b"], KubernetesSettings)
    assert policy.clusters["b"].url == "https://10.0.0.1:6443"
    assert [(rule.name, rule.seconds, rule.do) for rule in policy.rules] == [
        ("alert GpuLost|GpuRowRemapFailed", 300.0, "drain"),
        ("check gpu_.*", 0.0, "ask"),
        ("cause throttling", 0.0, "webhook"),
    ]
    assert policy.back.tests == ("nccl", "dcgm")


def test_without_a_file_there_is_no_policy_and_without_a_mode_it_is_a_dry_run(tmp_path: Path) -> None:
    assert load(None) == Policy()
    assert not load(written(tmp_path, GOOD.replace("mode: on\n", ""))).is_on


def test_an_alert_is_matched_whole_and_a_cause_anywhere(tmp_path: Path) -> None:
    alert, check, cause = load(written(tmp_path, GOOD)).rules
    assert alert.matches("GpuLost")
    assert not alert.matches("GpuLostAndFound")
    assert check.matches("gpu_count")
    assert cause.matches("hardware thermal throttling")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("mode: on", "mode: live", "policy.yaml:1: mode is 'live'; it can be dry-run, on"),
        ("mode: on", "mood: on", "policy.yaml:1: unknown setting mood"),
        ("percent: 5", "percent: 500", "policy.yaml:2: percent must be a number from 0 to 100"),
        ("percent: 5", "percent: nan", "policy.yaml:2: percent must be a number"),
        ("keep: 2", "keep: 0", "policy.yaml:2: keep must be a whole number from 1"),
        ("per-hour: 2", "per-hour: 2.5", "policy.yaml:2: per-hour must be a whole number"),
        ("slurm: {scontrol: /usr/bin/scontrol}", "nomad: {}", "policy.yaml:4: unknown setting nomad"),
        ("token-file: /t, ", "", "policy.yaml:5: kubernetes needs token-file"),
        ("https://10", "http://10", "policy.yaml:5: url must be an https address"),
        ("GpuLost|GpuRowRemapFailed", "'('", "policy.yaml:7: '(' is not a regular expression"),
        ("GpuLost|GpuRowRemapFailed", "'.*'", "policy.yaml:7: '.*' also matches the empty string"),
        ("for: 5m", "for: 5 minutes", "policy.yaml:7: '5 minutes' is not a time such as 90s"),
        ("do: ask", "do: reboot", "policy.yaml:8: do is 'reboot'; it can be drain, ask, webhook"),
        (", do: ask", "", "policy.yaml:8: `do` is missing"),
        ('check: "gpu_.*"', 'check: a, alert: b', "policy.yaml:8: a rule has one of alert, check, cause"),
        ("do: ask", "do: ask, confidence: high", "policy.yaml:8: only a rule on a cause has a confidence"),
        ('webhook: {url: "https://desk.example/x"}\n', "", "the section `webhook` with its url is missing"),
        ("[nccl, dcgm]", "[]", "policy.yaml:11: `tests` must name the active tests"),
        ("[nccl, dcgm]", "['{}']", "policy.yaml:11: '{}' is not the name of a test"),
        ("rules:", "regeln:", "policy.yaml:6: unknown setting regeln"),
    ],
)  # fmt: skip
def test_a_fault_is_one_line_with_its_place(old: str, new: str, said: str, tmp_path: Path) -> None:
    assert old in GOOD
    with pytest.raises(UsageError) as error:
        load(written(tmp_path, GOOD.replace(old, new, 1)))
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_the_service_does_not_start_with_a_fault_and_check_config_finds_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pyrometer_kit.logs.set_up", lambda *_: None)
    flags = [f"--policy.file={written(tmp_path, 'mode: on')}", "--web.listen-address=127.0.0.1:0"]
    assert main.run(flags, {}) == 2
    assert "`clusters` and `rules` are needed" in capsys.readouterr().err
    with pytest.raises(UsageError):
        commands.check_config(flags, {})
    written(tmp_path, GOOD)
    assert commands.check_config(flags, {}) == 0
