"""Experiment f: the RAS socket's answers and Flight Recorder's dumps of one real rank, for the collectives work.

One GPU is one rank: its communicator has no neighbour, but its process has the socket, the recorder and the watchdog.
On the stand-in the rank uses gloo, and a simulated job answers in place of NCCL's RAS.
"""

from __future__ import annotations

import io
import os
import pickle
import socket
import time
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from pyrometer_exporters.commands.gpu_check.check import Check, Experiment, Report
from pyrometer_exporters.commands.gpu_check.place import Place, say, scratch
from pyrometer_exporters.framework.outcome import PartError
from pyrometer_exporters.node.nccl import json_answer, text_answer
from pyrometer_exporters.node.nccl.ras_client import Conversation, NobodyListensError
from pyrometer_kit.flags import Address

RUN_DUMP, HANG_DUMP = "flight-recorder-run.pickle", "flight-recorder-hang.pickle"
_HANG_TIMEOUT, _HANG_SECONDS = 6, 40.0
_OPENING = (("greeting", "CLIENT PROTOCOL 2"), ("timeout", "TIMEOUT 5"))
CHECKS = (
    Check("ras", "the RAS socket of a job of one rank, read by our collector's client", "one communicator of one rank"),
    Check("ras_text", "its greeting, text and JSON answers", "recorded; JSON from NCCL 2.28.7 on"),
    Check("run_dump", "Flight Recorder's dump of a run", "its collectives, all completed"),
    Check("hang_dump", "its dump of a process that hangs in one, ended by the watchdog", "the last one not completed"),
)  # fmt: skip


def run(place: Place, report: Report) -> None:
    """Record a healthy rank and one that hangs."""
    torch = place.torch()
    if torch is None or not torch.distributed.is_available():
        report.skipped_rest("no PyTorch with collectives that can be used here")
        return
    with scratch() as folder:
        _healthy(place, report, folder)
        _hanging(place, report, folder)


def _healthy(place: Place, report: Report, folder: Path) -> None:
    address = ("127.0.0.1", _free_port())
    environment = _environment(folder, address)
    with place.ras(address), place.child("rank", folder=str(folder), environment=environment) as rank:
        started = rank.line()
        report.raw("rank", started)
        _ask(report, address)
        rank.go()
        ended = rank.line()
    dump = folder / ended["dump"] if ended.get("dump") else None
    _dump(_Dump(place, "run_dump", RUN_DUMP, ended), report, dump)


def _environment(folder: Path, address: tuple[str, int]) -> dict[str, str]:
    return {
        "NCCL_RAS_ADDR": f"{address[0]}:{address[1]}",
        "NCCL_DEBUG": "VERSION",
        "NCCL_SOCKET_IFNAME": "lo",
        "TORCH_FR_BUFFER_SIZE": "2000", "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        "TORCH_FR_DUMP_TEMP_FILE": str(folder / "dump_"), "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": str(folder / "dump_"),
        "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "2000",
    }  # fmt: skip


def _ask(report: Report, address: tuple[str, int]) -> None:
    recorded = {form: _recorded(address, form) for form in ("text", "json")}
    report.raw("RAS, as sent and received", recorded)
    greeting = recorded["text"].get("greeting", "")
    kinds = [form for form, communicator in recorded.items() if communicator.get("status")]
    measured = f"{greeting or 'no greeting'}; {', '.join(kinds) or recorded['text'].get('error', 'no answer')}"
    report.passed("ras_text", measured, ok="text" in kinds and greeting.upper().startswith("SERVER PROTOCOL"))
    try:
        with Conversation(Address(*address), time.monotonic() + 15) as conversation:
            form, chunks = conversation.status()
            snapshot = (json_answer if form == "json" else text_answer).read(chunks)
    except (NobodyListensError, PartError) as error:
        report.passed("ras", f"{type(error).__name__}: {error}", ok=False)
        return
    sizes = [communicator.size for communicator in snapshot.communicators]
    measured = f"NCCL {snapshot.version or 'of unknown version'}, {form}: communicators of {sizes or 'none'} ranks"
    report.passed("ras", measured, ok=bool(sizes) and set(sizes) == {1})


def _recorded(address: tuple[str, int], form: str) -> dict[str, str]:
    """Return what the socket says, line by line and then to its end, without our client's code."""
    answers: dict[str, str] = {}
    try:
        with socket.create_connection(address, 3) as connection, connection.makefile("rwb") as file:
            connection.settimeout(15)
            for name, line in (*_OPENING, ("format", f"SET FORMAT {form}")):
                file.write(f"{line}\n".encode())
                file.flush()
                answers[name] = file.readline().decode(errors="replace").strip()
            if form == "json" and answers["format"].upper() != "OK":
                return answers
            file.write(b"VERBOSE STATUS\n" if form == "text" else b"STATUS\n")
            file.flush()
            answers["status"] = file.read(1 << 20).decode(errors="replace")
    except OSError as error:
        answers["error"] = f"{type(error).__name__}: {error}"
    return answers


def _hanging(place: Place, report: Report, folder: Path) -> None:
    environment = _environment(folder, ("127.0.0.1", _free_port()))
    for old in folder.glob("dump_*"):
        old.unlink()
    with place.child("hang", folder=str(folder), environment=environment) as rank:
        started = rank.line()
        status = rank.wait(_HANG_SECONDS)
    dumps = sorted(folder.glob("dump_*"))
    report.raw("hang", {"status": status, "started": started, "files": [path.name for path in dumps]})
    last_line = {"status": status, **started}
    _dump(_Dump(place, "hang_dump", HANG_DUMP, last_line), report, dumps[0] if dumps else None)


class _Dump(NamedTuple):
    """A dump: the check that it is for, the file that it is kept as, and its process's last line."""

    place: Place
    check: str
    name: str
    said: dict[str, Any]


def _dump(dump: _Dump, report: Report, path: Path | None) -> None:
    check = dump.check
    if path is None or not path.exists():
        if "no_recorder" in dump.said:
            report.skipped(check, dump.said["no_recorder"])
        else:
            report.passed(check, f"no dump: {dump.said}", ok=False)
        return
    data = path.read_bytes()
    (dump.place.folder / dump.name).write_bytes(data)
    try:
        entries = load_dump(data)["entries"]
    except (pickle.UnpicklingError, KeyError, TypeError, ValueError, EOFError) as error:
        report.passed(check, f"{type(error).__name__}: {error}", ok=False)
        return
    states = [entry.get("state") for entry in entries]
    last = states[-1] if states else "none"
    measured = f"{len(states)} collectives, {states.count('completed')} completed, the last {last}"
    if dump.place.stand_in:  # gloo's collectives stay scheduled in it
        report.passed(check, measured, ok=bool(states), note="gloo's recorder doesn't follow what completes")
        return
    report.passed(check, measured, ok=bool(states) and (last == "completed") == (check == "run_dump"))


class _Plain(pickle.Unpickler):
    """Reads dicts, lists and plain values alone: a pickle of a job may hold anything."""

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401
        msg = f"a dump with {module}.{name} in it"
        raise pickle.UnpicklingError(msg)


def load_dump(data: bytes) -> Any:  # noqa: ANN401  of plain values
    """Return a dump's content.

    Raises:
        pickle.UnpicklingError: it holds more than plain values.
    """
    return _Plain(io.BytesIO(data)).load()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def rank(place: Place, *, folder: str) -> None:
    """Be a healthy rank: collectives until told to end, then a dump."""
    torch, tensor = begin(place, seconds=60)
    for _ in range(19):
        torch.distributed.all_reduce(tensor)
    _settle(torch, place.device)
    time.sleep(1.0)  # the watchdog marks what has completed
    say(ready=True, pid=os.getpid(), torch=str(torch.__version__), nccl=_nccl_version(torch))
    input()
    say(**dump(torch, Path(folder), "dump_run"))
    torch.distributed.destroy_process_group()


def hang(place: Place, *, folder: str) -> None:  # noqa: ARG001  the watchdog writes there
    """Be a rank that hangs in a collective until its time-out ends it."""
    torch, tensor = begin(place, seconds=_HANG_TIMEOUT)
    _settle(torch, place.device)
    say(ready=True, pid=os.getpid())
    # The collective is queued behind a kernel that spins for minutes: the watchdog sees it not end.
    torch.cuda._sleep(1 << 38)  # noqa: SLF001  there is no public one
    torch.distributed.all_reduce(tensor)
    torch.cuda.synchronize()


def begin(place: Place, seconds: float) -> tuple[Any, Any]:
    """Make the process group of one rank, with its store on loopback; return PyTorch and a tensor, reduced once."""
    torch: Any = place.torch()
    store = f"tcp://127.0.0.1:{_free_port()}"
    torch.distributed.init_process_group(
        place.backend, init_method=store, rank=0, world_size=1, timeout=timedelta(seconds=seconds)
    )
    tensor = torch.ones(1 << 10, device=place.device)
    torch.distributed.all_reduce(tensor)
    return torch, tensor


def _settle(torch: Any, device: str) -> None:  # noqa: ANN401
    if device == "cuda":
        torch.cuda.synchronize()


def dump(torch: Any, folder: Path, name: str) -> dict[str, str]:  # noqa: ANN401
    """Write Flight Recorder's dump, by the name that this PyTorch has for it."""
    recorder = torch._C._distributed_c10d  # noqa: SLF001  there is no public one
    for function in ("_dump_nccl_trace", "_dump_fr_trace"):
        try:
            data = getattr(recorder, function)()
        except (AttributeError, RuntimeError, TypeError):
            continue
        if isinstance(data, str):
            data = data.encode()
        try:
            if load_dump(data).get("entries"):
                (folder / name).write_bytes(data)
                return {"dump": name}
        except (pickle.UnpicklingError, AttributeError, ValueError, EOFError, KeyError):
            continue
    return {"no_recorder": "this PyTorch records no collectives of this backend"}


def _nccl_version(torch: Any) -> str:  # noqa: ANN401
    try:
        return ".".join(map(str, torch.cuda.nccl.version()))
    except Exception:  # noqa: BLE001  a build without NCCL
        return ""


EXPERIMENT = Experiment("f", "Collectives", 100, CHECKS, run)
