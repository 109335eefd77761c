"""A start says what anybody may do; a module that is slow to import waits for the worker that needs it."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from pathlib import Path

import bcrypt
import pytest

from pyrometer_alerting.app import main, settings
from pyrometer_alerting.incidents.storage.actions import ASK

POLICY = """
mode: on
clusters: {c1: {slurm: {}}}
rules:
  - {alert: GpuLost, for: 5m, do: drain}
  - {check: "gpu_.*", for: 5m, do: ask}
back: {tests: [dcgm], do: return}
"""


def test_the_service_listens_before_pandas_and_matplotlib_are_imported() -> None:
    late = "{'pandas', 'numpy', 'matplotlib'}"
    script = f"import sys, pyrometer_alerting.app.main; print(sorted({late} & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-c", script], text=True) == "[]\n"


@pytest.mark.parametrize(
    ("login", "said"),
    [
        ("nobody", "read incidents, the audit log and metrics and post alerts, which page people; ends are asked"),
        ("token", "may read incidents, the audit log and metrics (--web"),
        ("user", ""),
    ],
)
def test_without_a_login_the_start_says_what_anybody_may_do_and_the_policy_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, login: str, said: str
) -> None:
    monkeypatch.setattr("pyrometer_kit.logs.set_up", lambda *_: None)
    files = {"policy": POLICY, "token": "secret", "web": "basic_auth_users: {am: '%s'}\n"}
    hashed = bcrypt.hashpw(b"x", bcrypt.gensalt(4)).decode()
    for name, content in files.items():
        (tmp_path / name).write_text(content.replace("%s", hashed))
        (tmp_path / name).chmod(0o600)
    flags = [
        "--web.listen-address=127.0.0.1:0", f"--storage.path={tmp_path / 's'}", f"--policy.file={tmp_path / 'policy'}",
        "--alertmanager.url=http://127.0.0.1:9", *{"token": [f"--web.bearer-token-file={tmp_path / 'token'}"],
        "user": [f"--web.config.file={tmp_path / 'web'}"]}.get(login, []),
    ]  # fmt: skip
    policy = main._Configuration(settings.load(flags, {})).policy
    assert policy.is_on
    assert [policy.rules[0].do, policy.rules[1].do, policy.back.do] == (
        [ASK, ASK, ASK] if login == "nobody" else ["drain", ASK, "return"]
    )
    stop = threading.Event()
    stop.set()
    with caplog.at_level(logging.WARNING):
        assert main.run(flags, {}, stop) == 0
    lines = [record.getMessage() for record in caplog.records if "nobody has to log in" in record.getMessage()]
    assert len(lines) == bool(said)
    assert said in " ".join(lines)
    assert ("the policy asks people instead of acting" in " ".join(lines)) is (login == "nobody")
