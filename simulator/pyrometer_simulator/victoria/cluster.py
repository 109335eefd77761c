"""The cluster version's processes, each behind relays of its own; they can be killed, paused, cut off and filled up."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from pyrometer_simulator.demo.processes import Processes
from pyrometer_simulator.failures import Services
from pyrometer_simulator.ports import free_port
from pyrometer_simulator.shipped import project_folder
from pyrometer_simulator.victoria.relay import Relay
from pyrometer_simulator.victoria.shipped import addresses, commands, program_of, programs

HTTP = {"vmstorage": 8482, "vminsert": 8480, "vmselect": 8481, "vmauth": 8427, "vmagent": 8429, "vmalert": 8880}
# Flags by which a program listens elsewhere than on the port that the compose file's addresses have.
LISTENS = {8400: "vminsertAddr", 8401: "vmselectAddr"}
CHANGED = {"VICTORIA_REPLICATION": "2"}
# A vmstorage takes nothing below 100 MB of free disk (-storage.minFreeDiskSpaceBytes).
SMALL_DISK_BYTES = 384 << 20
FULL_BYTES = 50 << 20
# Those that have something on a disk: data, what could not be sent yet, results too large for memory.
SMALL = ("vmstorage-2", "vmagent-0", "vmselect")
ORDER = ("vmstorage", "vminsert", "vmselect", "vmauth", "vmagent", "vmalert")


class Cluster(Services):
    """All services of the profile ``scale-cluster``.

    Attributes:
        names: services, in the order in which they are started.
        rules: the rules that it evaluates, those of the map each 15 s instead of each minute.
        url: where people read, through vmauth.
        write_url: where others than vmagent write, through vmauth.
        small: those that have a small disk of their own; none where it can't be mounted.
    """

    def __init__(self, folder: Path, outside: Mapping[str, int], settings: Mapping[str, str]) -> None:
        """Prepare a cluster in an empty folder.

        Args:
            folder: for data, configuration and logs.
            outside: the ports of what the configuration names besides, such as ``alertmanager``.
            settings: settings of .env, over the ones that the cluster version needs.
        """
        super().__init__()
        self._folder = folder
        self._outside = dict(outside)
        self._programs = programs()
        self._commands = commands({**addresses(), **CHANGED, **settings})
        self.names = sorted(self._commands, key=lambda name: (ORDER.index(program_of(name)), name))
        self._ports: dict[tuple[str, int], int] = {}
        self._relays: dict[tuple[str, str, int], Relay] = {}
        self._down: set[str] = set()
        (folder / "logs").mkdir(parents=True)
        self._processes = Processes(folder / "logs")
        self._configuration = folder / "etc"
        shutil.copytree(project_folder() / "compose/victoria", self._configuration)
        self.rules = self._configuration / "rules"
        shutil.copytree(project_folder() / "alert_rules", self.rules, ignore=shutil.ignore_patterns("tests"))
        # The map's records build on each other ten deep, and vmalert's come an evaluation later for each.
        slow = self.rules / "fleet_map.rules.yaml"
        slow.write_text(slow.read_text().replace("interval: 1m", "interval: 15s"))
        (self._configuration / "targets").mkdir()
        auth = self._configuration / "vmauth.yaml"
        auth.write_text(self._local("vmauth", auth.read_text()))
        for name in (each for each in self.names if program_of(each) == "vmalert"):
            # It has relays of its own, and here what the environment is in the container.
            text = (self._configuration / "notifier.yaml").read_text(encoding="utf-8")
            text = text.replace("%{ALERTMANAGER_URL}", "http://alertmanager:9093")
            text = text.replace("%{PYROMETER_CLUSTER}", settings.get("PYROMETER_CLUSTER", "cluster"))
            (self._configuration / f"{name}.yaml").write_text(self._local(name, text), encoding="utf-8")
            self._commands[name] = [flag.replace("notifier.yaml", f"{name}.yaml") for flag in self._commands[name]]
        self.url = self._local("people", addresses()["VICTORIA_READ_URL"])
        self.write_url = self._local("people", addresses()["VICTORIA_WRITE_URL"])
        self.small = tuple(name for name in SMALL if self._mount(name))

    @property
    def targets(self) -> Path:
        """The folder in which vmagents look for targets."""
        return self._configuration / "targets"

    def relay(self, client: str, server: str, target: int) -> int:
        """Return the port by which a client reaches a server's port, through a relay of their own."""
        key = client, server, target
        if key not in self._relays:
            self._relays[key] = Relay(*key)
            self._relays[key].start()
        return self._relays[key].port

    def port(self, service: str, port: int | None = None) -> int:
        """Return the loopback port for a port of a service, by default that of its HTTP server."""
        key = service, port or HTTP[program_of(service)]
        if key not in self._ports:
            self._ports[key] = self._outside.get(service) or free_port()
        return self._ports[key]

    def start_all(self) -> None:
        """Start everything and wait until it answers. Raises DemoError."""
        self.start_stores()
        for name in self.names:
            if name not in self.running:
                self.start(name)

    def start_stores(self) -> None:
        """Start all but vmagent and vmalert, and wait until they answer. Raises DemoError."""
        for name in self.names:
            if program_of(name) not in ("vmagent", "vmalert"):
                self.start(name)

    def start(self, name: str) -> None:
        """Start one service and wait until it answers. Raises DemoError."""
        self._launch(name)
        self._processes.wait_until_ready({name: f"http://127.0.0.1:{self.port(name)}/health"})

    def _launch(self, name: str) -> None:
        program = program_of(name)
        flags = [self._local(name, flag) for flag in self._commands[name]]
        flags.append(f"-httpListenAddr=127.0.0.1:{self.port(name)}")
        if program == "vmstorage":
            flags += [f"-{flag}=127.0.0.1:{self.port(name, port)}" for port, flag in LISTENS.items()]
            # As much as the machine has is for production.
            flags.append("-memory.allowedBytes=256MB")
        # The output from before a kill is kept.
        log = self._folder / "logs" / f"{name}.log"
        if log.exists():
            log.rename(log.with_suffix(f".{os.urandom(3).hex()}.log"))
        self.running[name] = self._processes.start(
            name, [str(self._programs[program]), *flags], {"GOMAXPROCS": "2"}, dispensable=True
        )
        self._down.discard(name)

    def kill(self, name: str) -> None:
        """SIGKILL, and no start by ``revive`` until ``start``."""
        self._down.add(name)
        super().kill(name)

    def revive(self) -> list[str]:
        """Start again what has ended on its own, as ``restart: unless-stopped`` does; return which."""
        ended = [name for name, each in self.running.items() if name not in self._down and each.poll() is not None]
        for name in ended:
            self._launch(name)
        return ended

    def cut(self, name: str) -> None:
        """Carry nothing to the service or from it."""
        for relay in self._relays.values():
            if name in relay.ends:
                relay.cut()

    def heal(self, name: str) -> None:
        """Carry it again."""
        for relay in self._relays.values():
            if name in relay.ends:
                relay.heal()

    def fill(self, name: str) -> None:
        """Leave a vmstorage less of its small disk than it wants free, and another service nothing."""
        folder = self._data(name)
        left = FULL_BYTES if program_of(name) == "vmstorage" else 0
        free = shutil.disk_usage(folder).free
        with (folder / "filler").open("wb") as filler:
            filler.write(bytes(max(0, free - left)))

    def empty(self, name: str) -> None:
        """Give a service its disk back."""
        (self._data(name) / "filler").unlink()

    @property
    def faults(self) -> dict[str, tuple[Callable[[str], None], Callable[[str], None]]]:
        """The faults of a service by name, each with what ends it."""
        return {**super().faults, "cut off": (self.cut, self.heal), "full": (self.fill, self.empty)}

    def close(self) -> None:
        """End everything."""
        for process in self.running.values():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
        for relay in self._relays.values():
            relay.heal()
        self._processes.end_all()
        for relay in self._relays.values():
            relay.close()
        for name in self.small:
            subprocess.run(["umount", "--lazy", str(self._data(name))], check=False)

    def _data(self, name: str) -> Path:
        return self._folder / "victoria" / name

    def _mount(self, name: str) -> bool:
        self._data(name).mkdir(parents=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK_BYTES}", "pyrometer", str(self._data(name))]
        return not os.geteuid() and not subprocess.run(command, check=False, capture_output=True).returncode

    def _local(self, client: str, text: str) -> str:
        """Return a flag or a configuration with what is here for what is in the containers."""
        names = "|".join(sorted({*self._commands, *self._outside}, key=len, reverse=True))

        def relayed(found: re.Match[str]) -> str:
            server, port = found[1], int(found[2])
            return f"127.0.0.1:{self.relay(client, server, self.port(server, port))}"

        text = re.sub(rf"\b({names}):(\d+)\b", relayed, text)
        return text.replace("/etc/victoria", str(self._configuration)).replace(
            "=/victoria/", f"={self._folder / 'victoria'}/"
        )
