"""Start Prometheus and Alertmanager with the configuration that is shipped, and an alerting service beside them."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from pyrometer_simulator.demo.processes import DemoError, Processes
from pyrometer_simulator.slack import FakeSlack
from pyrometer_simulator.stack import Stack


def project_folder() -> Path:
    """Return the project's root: the demo runs from a source tree, as its configuration isn't part of any wheel."""
    for folder in Path(__file__).resolve().parents:
        if (folder / "alert_rules").is_dir() and (folder / "compose").is_dir():
            return folder
    msg = "pyrometer-demo: no alert_rules and compose folders above it: run it from a checkout, with make demo"
    raise DemoError(msg)


def target(port: int, **labels: str) -> dict[str, object]:
    """Return a target on loopback, with labels, for ``file_sd_configs``."""
    return {"targets": [f"127.0.0.1:{port}"], "labels": labels}


def configure_prometheus(folder: Path, targets: Mapping[str, Sequence[object]], rules: Path | None = None) -> None:
    """Write the shipped configuration into a new folder, with the targets of each of its files, and rules."""
    shutil.copytree(project_folder() / "compose/prometheus", folder)
    (folder / "rules").symlink_to(rules or project_folder() / "alert_rules")
    (folder / "targets").mkdir()
    for name, content in targets.items():
        (folder / f"targets/{name}.yaml").write_text(json.dumps(content))  # JSON is YAML


def prometheus_command(stack: Stack, port: int, *flags: str) -> list[str]:
    """Return the command that starts Prometheus in such a folder."""
    return [
        str(stack.prometheus), "--config.file=prometheus.yaml", "--storage.tsdb.path=data",
        # An alert that Alertmanager, still starting, could not take is sent again after this; 1 min by default.
        f"--web.listen-address=127.0.0.1:{port}", "--rules.alert.resend-delay=15s", *flags,
    ]  # fmt: skip


def start_alertmanager(folder: Path, stack: Stack, processes: Processes, webhook: str, port: int) -> None:
    """Start an Alertmanager with the shipped configuration in a new folder, under the folder's name."""
    shutil.copytree(project_folder() / "compose/alertmanager", folder)
    (folder / "alerting.url").write_text(webhook)
    command = [
        *stack.alertmanager_command, "--config.file=alertmanager.yaml", "--storage.path=data",
        f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address=",
    ]  # fmt: skip
    processes.start(folder.name, command, {"URL_FILE_BASE": str(folder)}, folder)


def start_alerting(
    folder: Path,
    processes: Processes,
    port: int,
    slack: FakeSlack,
    *flags: str,
    channel: str,
    prometheus: str,
    alertmanager: str,
    env: Mapping[str, str] | None = None,
) -> None:
    """Start an alerting service that posts to a channel of a simulated Slack; its token and store are in the folder."""
    token = folder / "slack-token"
    token.touch(mode=0o600)
    token.write_text(slack.token)
    command = [
        sys.executable, "-m", "pyrometer_alerting.app.main", f"--web.listen-address=127.0.0.1:{port}",
        f"--prometheus.url={prometheus}", f"--alertmanager.url={alertmanager}", f"--slack.api-url={slack.url}",
        f"--slack.bot-token-file={token}", f"--slack.channel={channel}", f"--storage.path={folder / 'alerting'}",
        *flags,
    ]  # fmt: skip
    processes.start("alerting", command, env)
