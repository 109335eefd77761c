"""The manual's blocks on upgrading, going back and uninstalling without containers, followed on a host of their own."""

from __future__ import annotations

import contextlib
import filecmp
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tools import chart

from pyrometer_kit.http_client import get, get_json
from pyrometer_simulator.demo.processes import answers
from pyrometer_simulator.http_call import call
from pyrometer_simulator.ports import free_port
from pyrometer_simulator.sysfs import SysfsTree

pytestmark = [pytest.mark.wheels, pytest.mark.timeout(400)]

ROOT = Path(__file__).resolve().parents[2]
PAGES = "\n".join((ROOT / "docs" / page).read_text() for page in ("upgrading.md", "howto/uninstall.md"))
NODE_PAGE = (ROOT / "docs/howto/gpu-node.md").read_text()
# The last commit whose alerting service has the schema before this one; its exporters are of the same day.
BEFORE = "ebf0c8c5"
# systemctl of a host without systemd, as far as the pages use it: a unit is a script beside it.
SYSTEMCTL = """#!/bin/sh
here=$(dirname "$0")
stop() {
    [ -e "$here/$1.pid" ] || return 0
    pid=$(cat "$here/$1.pid")
    kill "$pid"
    # A zombie has ended too: not every container's PID 1 reaps.
    while kill -0 "$pid" 2>/dev/null && ! grep -q '^State:.Z' "/proc/$pid/status" 2>/dev/null; do sleep 0.05; done
    rm "$here/$1.pid"
}
start() { sh "$here/$1.unit" >>"$here/$1.log" 2>&1 </dev/null & echo $! >"$here/$1.pid"; }
# As systemd 255 does: one unit that is not there, and nothing happens to the others.
known() {
    for unit; do
        [ -e "$here/$unit.unit" ] || { echo "Unit file $unit.service does not exist." >&2; exit 1; }
    done
}
case "$*" in
"stop "*) stop "$2" ;;
"start "*) start "$2" ;;
"restart "*) stop "$2"; start "$2" ;;
"try-restart "*.service)
    for pid in "$here"/${2%.service}.pid; do
        [ -e "$pid" ] || continue
        unit=$(basename "$pid" .pid); stop "$unit"; start "$unit"
    done ;;
"enable --now "*) shift 2; known "$@"; for unit; do start "$unit"; done ;;
"disable --now "*) shift 2; known "$@"; for unit; do stop "$unit"; done ;;
daemon-reload) ;;
*) echo "systemctl: not played here: $*" >&2; exit 1 ;;
esac
"""


def block(title: str, page: str = PAGES) -> str:
    found = re.search(rf'^( *)```(?:sh)? title="{title}"\n(.*?)^\1```$', page, re.MULTILINE | re.DOTALL)
    assert found, title
    return textwrap.dedent(found[2])


class Host:
    """A host in a folder: /opt, /var/lib, /etc and /dev of the pages are below it, and its Python has our needs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tools = folder / "tools"
        self.tools.mkdir(parents=True)
        for name, text in (
            ("systemctl", SYSTEMCTL),
            ("systemd-sysusers", "#!/bin/sh\n"),
            ("systemd-tmpfiles", "#!/bin/sh\n"),
        ):
            (self.tools / name).write_text(text)
            (self.tools / name).chmod(0o755)
        for place in (
            "opt",
            "var/lib",
            "etc/systemd/system",
            "etc/sysusers.d",
            "etc/tmpfiles.d",
            "etc/default",
            "dev/shm",
        ):
            (folder / place).mkdir(parents=True)

    def make_python(self) -> None:
        """Make /opt/pyrometer; what our packages need, and what builds them, is that of this test's own environment."""
        subprocess.run([sys.executable, "-m", "venv", self.folder / "opt/pyrometer"], check=True)
        (site,) = (self.folder / "opt/pyrometer/lib").glob("python*/site-packages")
        ours = next(path for path in sys.path if path.endswith("site-packages"))
        (site / "needs.pth").write_text(f"{ours}\n")

    def follow(self, commands: str, checkout: Path) -> None:
        """Run a block in a checkout, with this host's folders in the place of the pages'."""
        here = re.sub(r"(?<![\w.])/(opt|var/lib|etc|dev/shm)\b", rf"{self.folder}/\1", commands)
        # It runs as root: nothing outside of this host's folder.
        assert not re.search(rf"(?m)^rm .*\s/(?!{re.escape(str(self.folder).lstrip('/'))}/)", here), here
        # Without the network: nothing is downloaded, and our packages are built with what is installed.
        pip = {
            "PIP_NO_DEPS": "1",
            "PIP_NO_BUILD_ISOLATION": "0",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_QUIET": "1",
        }
        environment = {**os.environ, **pip, "PATH": f"{self.tools}:{os.environ['PATH']}", "PYTHONPATH": ""}
        done = subprocess.run(
            ["bash", "-eu", "-c", here], cwd=checkout, env=environment, capture_output=True, text=True, check=False,
            timeout=180,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr

    def unit(self, name: str, *command: str) -> None:
        (self.tools / f"{name}.unit").write_text(f"cd {self.folder}; unset PYTHONPATH; exec {' '.join(command)}\n")

    def wait_for(self, name: str, url: str) -> None:
        deadline = time.monotonic() + 60
        while not answers(url):
            assert time.monotonic() < deadline, (self.tools / f"{name}.log").read_text()
            time.sleep(0.1)

    def has(self, package: str, checkout: Path) -> bool:
        """Return whether each module of a package is installed as it is in a checkout."""
        (site,) = (self.folder / "opt/pyrometer/lib").glob("python*/site-packages")
        folder = next(checkout.glob(f"*/{package}"))
        modules = [str(path.relative_to(folder)) for path in folder.rglob("*.py")]
        same, _, _ = filecmp.cmpfiles(folder, site / package, modules, shallow=False)
        return same == modules

    def processes(self) -> dict[str, str]:
        return {path.stem: path.read_text() for path in self.tools.glob("*.pid")}

    def end(self) -> None:
        for path in self.tools.glob("*.pid"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(path.read_text()), signal.SIGKILL)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path / "host")
    yield made
    made.end()


def of_git(*command: str) -> bytes:
    """Return what git says of this checkout; skip where it has nothing to say, as in an unpacked tarball."""
    if shutil.which("git") is None:
        pytest.skip("no git here")
    done = subprocess.run(["git", *command], cwd=ROOT, capture_output=True, check=False)
    if done.returncode or not done.stdout:
        pytest.skip(f"`git {' '.join(command)}` gives nothing here: a checkout without its history")
    return done.stdout


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout of the release before."""
    folder = tmp_path_factory.mktemp("before")
    subprocess.run(["tar", "-x", "-C", folder], input=of_git("archive", BEFORE), check=True)
    return folder


@pytest.fixture(scope="module")
def after(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this checkout, which is built in."""
    folder = tmp_path_factory.mktemp("after")
    names = of_git("ls-files")
    tar = subprocess.run(["tar", "-c", "-T", "-"], cwd=ROOT, input=names, capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", folder], input=tar, check=True)
    return folder


def alert(name: str) -> bytes:
    labels = {
        "alertname": name,
        "severity": "critical",
        "component": "gpu",
        "cluster": "c1",
        "node": "gpu-001",
        "gpu": "3",
    }
    one = {
        "status": "firing", "labels": labels, "annotations": {"summary": name, "description": "d", "runbook": "r"},
        "startsAt": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "endsAt": "0001-01-01T00:00:00Z",
        "fingerprint": name.lower(), "generatorURL": "http://p/",
    }  # fmt: skip
    delivery = {
        "version": "4", "groupKey": f"{{}}:{{{name}}}", "truncatedAlerts": 0, "status": "firing",
        "receiver": "pyrometer", "groupLabels": {"alertname": name}, "commonLabels": labels, "commonAnnotations": {},
        "externalURL": "http://a", "alerts": [one],
    }  # fmt: skip
    return json.dumps(delivery).encode()


def post(url: str, name: str) -> None:
    assert call(f"{url}/api/v1/alertmanager", alert(name), Content_Type="application/json").status == 200


def incidents(url: str) -> dict[str, set[str]]:
    found = get_json(f"{url}/api/v1/incidents")
    return {each["id"]: {one["labels"]["alertname"] for one in each["alerts"]} for each in found["incidents"]}


def until_known(url: str, name: str) -> dict[str, set[str]]:
    deadline = time.monotonic() + 30
    while True:
        found = incidents(url)
        if any(name in names for names in found.values()):
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.1)


def test_incidents_survive_an_upgrade_and_the_way_back(host: Host, before: Path, after: Path) -> None:
    port = free_port()
    url, state = f"http://127.0.0.1:{port}", host.folder / "var/lib/pyrometer-alerting"
    host.make_python()
    host.follow("/opt/pyrometer/bin/pip install ./kit ./alerting", before)
    host.unit(
        "pyrometer-alerting", str(host.folder / "opt/pyrometer/bin/pyrometer-alerting"),
        f"--storage.path={state}", f"--web.listen-address=127.0.0.1:{port}",
    )  # fmt: skip
    host.follow("systemctl start pyrometer-alerting", before)
    host.wait_for("pyrometer-alerting", f"{url}/-/ready")
    copy, newer = (state.with_name(f"{state.name}.{when}") for when in ("before", "after"))
    cluster = f"127.0.0.1:{free_port()}"
    host.unit(
        "pyrometer-cluster-exporter", str(host.folder / "opt/pyrometer/bin/pyrometer-cluster-exporter"),
        f"--web.listen-address={cluster}", f"--path.state={host.folder / 'var/lib/pyrometer-cluster'}",
    )  # fmt: skip
    for earlier, exporters in (("GpuLost", []), ("GpuEccUncorrected", ["pyrometer_exporters", "pyrometer"])):
        if exporters:
            host.follow("/opt/pyrometer/bin/pip install ./kit ./client ./exporters", before)
            host.follow("systemctl start pyrometer-cluster-exporter", before)
            host.wait_for("pyrometer-cluster-exporter", f"http://{cluster}/-/ready")

        def follow(title: str, checkout: Path, exporters: list[str] = exporters) -> None:
            runs = host.processes()
            host.follow(block(title), checkout)
            host.wait_for("pyrometer-alerting", f"{url}/-/ready")
            if exporters:
                host.wait_for("pyrometer-cluster-exporter", f"http://{cluster}/-/ready")
            assert all(host.has(package, checkout) for package in ["pyrometer_alerting", *exporters])
            assert host.processes().keys() == runs.keys()
            assert not host.processes().items() & runs.items()  # each of them was restarted

        post(url, earlier)
        known = until_known(url, earlier)

        follow("up: alerting service", after)
        assert incidents(url) == known
        post(url, "GpuXidCritical")
        until_known(url, "GpuXidCritical")

        follow("back: alerting service", before)
        assert incidents(url) == known  # as at the upgrade: what came since is lost, as the page says
        assert (newer / "alerting.sqlite3").exists()
        assert not (newer / state.name).exists()
        shutil.copytree(newer, copy)  # as after an upgrade without a way back: the next one has a copy of its own


def test_the_release_before_refuses_the_newer_file_and_leaves_it(host: Host, before: Path, after: Path) -> None:
    host.make_python()
    state, program = host.folder / "var/lib/pyrometer-alerting", host.folder / "opt/pyrometer/bin/pyrometer-alerting"
    port = free_port()
    host.follow("/opt/pyrometer/bin/pip install ./kit ./alerting", after)
    host.unit("pyrometer-alerting", str(program), f"--storage.path={state}", f"--web.listen-address=127.0.0.1:{port}")
    host.follow("systemctl start pyrometer-alerting", after)
    host.wait_for("pyrometer-alerting", f"http://127.0.0.1:{port}/-/ready")
    host.follow("systemctl stop pyrometer-alerting; /opt/pyrometer/bin/pip install --upgrade ./kit ./alerting", before)
    database = state / "alerting.sqlite3"
    content = database.read_bytes()
    done = subprocess.run(
        [program, f"--storage.path={state}", "--web.listen-address=127.0.0.1:0"], env={"PATH": os.environ["PATH"]},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    assert "written by another version" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert database.read_bytes() == content


def flaps(url: str) -> float:
    text = get(f"{url}/metrics").decode()
    found = re.search(r'^pyrometer_nic_link_down_events_total\{.*device="mlx5_0".*\} (\S+)$', text, re.MULTILINE)
    assert found, text
    return float(found[1])


def test_counts_of_a_node_survive_an_upgrade_and_the_way_back(host: Host, before: Path, after: Path) -> None:
    tree, port = SysfsTree(host.folder / "hardware", hcas=1, gpus=0), free_port()
    url = f"http://127.0.0.1:{port}"
    host.make_python()
    host.follow("/opt/pyrometer/bin/pip install ./kit ./client ./exporters", before)
    host.unit(
        "pyrometer-node-exporter", str(host.folder / "opt/pyrometer/bin/pyrometer-node-exporter"),
        f"--web.listen-address=127.0.0.1:{port}", f"--path.state={host.folder / 'var/lib/pyrometer'}",
        f"--path.sysfs={tree.sysfs}", f"--path.procfs={tree.procfs}",
        f"--path.rings={host.folder / 'dev/shm/pyrometer'}", "--no-collector.kernel", "--no-collector.checks",
    )  # fmt: skip
    host.follow("systemctl start pyrometer-node-exporter", before)
    host.wait_for("pyrometer-node-exporter", f"{url}/-/ready")
    assert flaps(url) == 0
    for checkout, expected in ((after, 1.0), (before, 2.0)):
        tree.nic("mlx5_0").down()
        deadline = time.monotonic() + 30
        while flaps(url) < expected:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        tree.nic("mlx5_0").up()
        flaps(url)  # it has seen the link up again
        host.follow(block("up and back: GPU node"), checkout)
        host.wait_for("pyrometer-node-exporter", f"{url}/-/ready")
        assert flaps(url) == expected


def test_nothing_stays_of_a_node_whose_page_of_uninstalling_was_followed(host: Host, after: Path) -> None:
    def files() -> set[Path]:
        return {path for path in host.folder.rglob("*") if not path.is_relative_to(host.tools)}

    empty = files()
    install = textwrap.dedent(NODE_PAGE.partition('=== "systemd"')[2].partition("```\n")[2].partition("    ```")[0])
    host.unit("pyrometer-node-exporter", "sleep", "60")
    host.make_python()
    host.follow(install, after)
    for place in ("var/lib/pyrometer", "dev/shm/pyrometer"):
        (host.folder / place).mkdir()
    (host.folder / "etc/default/pyrometer-node-exporter").write_text("PYROMETER_FLAGS=--collector.nccl\n")
    (host.folder / "etc/pyrometer/slurm").mkdir(parents=True)
    shutil.copy(ROOT / "compose/slurm/prolog.sh", host.folder / "etc/pyrometer/slurm")
    (host.folder / "etc/pyrometer/checks.yaml").write_text("expect: {gpus: 8}\n")
    assert (host.folder / "opt/pyrometer/bin/pyrometer-node-exporter").exists()
    host.follow(block("GPU node"), after)
    assert files() == empty


@pytest.mark.parametrize("units", [["alerting"], ["alerting", "cluster-exporter"]], ids=" ".join)
def test_nothing_stays_of_an_alerting_host_whose_page_of_uninstalling_was_followed(
    host: Host, after: Path, units: list[str]
) -> None:
    def files() -> set[Path]:
        return {path for path in host.folder.rglob("*") if not path.is_relative_to(host.tools)}

    empty = files()
    host.make_python()
    for name in units:
        host.unit(f"pyrometer-{name}", "sleep", "60")
        host.follow(f"cp compose/systemd/pyrometer-{name}.service /etc/systemd/system/", after)
        host.follow(f"systemctl enable --now pyrometer-{name}", after)
        (host.folder / f"etc/default/pyrometer-{name}").write_text("PYROMETER_FLAGS=\n")
    host.follow("cp compose/systemd/pyrometer.sysusers.conf /etc/sysusers.d/pyrometer.conf", after)
    for place in ("etc/pyrometer", "var/lib/pyrometer-alerting", "var/lib/pyrometer-cluster"):
        (host.folder / place).mkdir()
    for when in ("before", "after"):
        (host.folder / f"var/lib/pyrometer-alerting.{when}").mkdir()
    assert len(list(host.tools.glob("*.pid"))) == len(units)
    host.follow(block("alerting service"), after)
    assert files() == empty
    assert not list(host.tools.glob("*.pid"))


def test_what_helm_leaves_is_what_the_page_deletes() -> None:
    if chart.program("helm") is None:
        pytest.skip("no helm: `make chart-programs` builds it")
    rendered = chart.template("--set=cluster=c1")
    kept = [
        each for each in yaml.safe_load_all(rendered)
        if each and each["metadata"].get("annotations", {}).get("helm.sh/resource-policy") == "keep"
    ]  # fmt: skip
    assert {each["kind"] for each in kept} == {"PersistentVolumeClaim"}
    selector = re.search(r"--selector=(\S+)=(\S+)", block("Kubernetes"))
    assert selector
    assert all(each["metadata"]["labels"][selector[1]] == selector[2] for each in kept)


def test_every_volume_of_the_monitoring_host_goes_with_it() -> None:
    file = yaml.safe_load((ROOT / "compose/compose.yaml").read_text())
    assert "docker compose --profile '*' down --remove-orphans --volumes" in block("monitoring host")
    assert all((settings or {}).get("external") is None for settings in file["volumes"].values())
