"""The page for those with a Prometheus of their own: its blocks, pasted as they are, are good configurations."""

from __future__ import annotations

import re
import subprocess
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from pyrometer_alerting.app import main as alerting
from pyrometer_exporters.commands.doctor import main as doctor
from pyrometer_exporters.commands.doctor import stack as asked
from pyrometer_simulator.stack import Stack
from pyrometer_simulator.stack.prometheus import running
from pyrometer_simulator.stack.promtool import objections

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/howto/existing-stack.md").read_text(encoding="utf-8")
DEPLOYMENT = (ROOT / "docs/deployment.md").read_text(encoding="utf-8")
BLOCK = re.compile(r'^( *)```yaml title="([^"]+)"\n(.*?)^\1```$', re.MULTILINE | re.DOTALL)
COMPONENTS = set(
    re.findall(r"component: (\w+)", "".join(path.read_text() for path in (ROOT / "alert_rules").glob("*.rules.yaml")))
)


def blocks(page: str = PAGE) -> Iterator[tuple[str, str]]:
    for _, title, text in BLOCK.findall(page):
        yield title, textwrap.dedent(text)


@pytest.fixture
def pasted(tmp_path: Path) -> Path:
    """A folder with every block of a file appended to that file, as a reader would paste them."""
    for title, text in blocks():
        if title.endswith((".yml", ".yaml")):
            path = tmp_path / title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text((path.read_text() if path.exists() else "") + text, encoding="utf-8")
    (tmp_path / "pyrometer/rules").symlink_to(ROOT / "alert_rules")
    (tmp_path / "slack-token").touch(mode=0o600)
    (tmp_path / "slack-token").write_text("xoxb-1", encoding="utf-8")
    return tmp_path


def test_prometheus_takes_the_blocks_as_they_are(stack: Stack, pasted: Path) -> None:
    assert objections(stack.promtool, "check", "config", pasted / "prometheus.yml") == ""


@pytest.mark.parametrize("kind", ["consul", "static"])
def test_every_discovery_gives_cluster_and_node(stack: Stack, tmp_path: Path, kind: str) -> None:
    job = {"job_name": "node", **yaml.safe_load(dict(blocks(DEPLOYMENT))[kind])}
    assert {"cluster", "node"} <= {each.get("target_label") for each in job["relabel_configs"]}
    job.pop("consul_sd_configs", None)  # Debian builds Prometheus without it; the relabelling is checked all the same
    (tmp_path / "p.yaml").write_text(yaml.safe_dump({"scrape_configs": [job]}), encoding="utf-8")
    assert objections(stack.promtool, "check", "config", tmp_path / "p.yaml") == ""


def test_alertmanager_takes_its_block(stack: Stack, pasted: Path) -> None:
    command = [*stack.amtool_command, "check-config", str(pasted / "alertmanager.yml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("component", sorted(COMPONENTS))
def test_every_alert_of_ours_goes_to_the_service(stack: Stack, pasted: Path, component: str) -> None:
    command = [*stack.amtool_command, "config", "routes", "test", f"--config.file={pasted / 'alertmanager.yml'}"]
    done = subprocess.run([*command, f"component={component}"], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "pyrometer", done.stderr


def test_the_check_of_the_page_sees_what_was_pasted(stack: Stack, pasted: Path) -> None:
    """A Prometheus with these blocks: jobs, labels and rules are there, and the two nodes do not exist."""
    flags = (f"--config.file={pasted / 'prometheus.yml'}", f"--storage.tsdb.path={pasted / 'data'}")
    with running(stack.prometheus, lambda _port: flags, pasted / "log") as url:
        lines: list[str] = []
        for _attempt in range(60):  # a target is scraped within its interval of 15 s
            lines = [str(finding) for finding in asked.check(asked.Stack(url))]
            if any("job batches: 2 of 2" in line for line in lines) and any(
                "job node: 2 of 2" in line for line in lines
            ):
                break
            time.sleep(0.5)
    told = "\n".join(lines)
    assert "job node: 2 of 2 targets are down (gpu-001:9935, gpu-002:9935)" in told
    assert "have no label" not in told
    assert re.search(r"^ok       \d+ rules in \d+ groups are evaluated$", told, re.MULTILINE)


def test_the_service_takes_its_complete_file(pasted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = pasted / "pyrometer/alerting.yaml"
    text = path.read_text(encoding="utf-8").replace("/etc/pyrometer/slack-token", str(pasted / "slack-token"))
    path.write_text(text, encoding="utf-8")
    assert alerting.run(["check-config", f"--config.file={path}"], {}) == 0, capsys.readouterr().err
    unit = (ROOT / "compose/systemd/pyrometer-alerting.service").read_text(encoding="utf-8")
    assert "--config.file=/etc/pyrometer/alerting.yaml" in unit
    assert {"web.external-url", "prometheus.external-url", "alertmanager.external-url"} <= yaml.safe_load(text).keys()


def test_what_the_page_copies_is_in_the_checkout() -> None:
    named = re.findall(r"`((?:alert_rules|dashboards|compose)/[\w./*-]+)`", PAGE)
    assert {name for name in named if not list(ROOT.glob(name.rstrip("/")))} == set()
    boards = re.findall(r"`([\w-]+\.json)`", PAGE)
    assert [name for name in boards if not (ROOT / "dashboards/json" / name).exists()] == []
    packages = re.findall(r"\./(\w+)", PAGE.partition('title="install"')[2].partition("```")[0])
    assert [name for name in packages if not (ROOT / name / "pyproject.toml").exists()] == []


def test_the_check_of_the_page_has_flags_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    command = PAGE.partition("## 6.")[2].partition("```sh\n")[2].partition("```")[0]
    with pytest.raises(SystemExit):
        doctor.main(["--help"])
    known = capsys.readouterr().out
    assert [flag for flag in re.findall(r"--[a-z.-]+", command) if flag not in known] == []
