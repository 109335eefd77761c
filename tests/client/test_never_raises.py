"""Nothing that a job does to the client, and nothing that the node does to the ring, reaches the training loop."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from client_ring_reader import Python, ReadRing

import pyrometer
from pyrometer import _ring_file
from pyrometer._settings import StartSettings


class Bomb:
    """An argument that fails whatever is asked of it."""

    def _explode(self, *_: object) -> None:
        raise RuntimeError("a Tensor with 2 elements cannot be converted to Scalar")

    __bool__ = __str__ = __repr__ = __int__ = __float__ = __index__ = __hash__ = __len__ = _explode  # type: ignore[assignment]
    __le__ = __lt__ = __ge__ = __gt__ = __eq__ = __format__ = _explode  # type: ignore[assignment]


def use(run: pyrometer.Run) -> None:
    for _ in range(3):
        with run.step(), run.part("data"):
            run.tag("eval")
            run.record(loss=1.0, grad_norm=1.0, tokens=1, flops=1.0)
    run.close()
    with run.step():
        run.record(loss=1.0)


def test_calls_with_arguments_missing_or_too_many(rings: str, seen: ReadRing) -> None:
    run: Any = pyrometer.start("r", rings=rings)
    with run.step(7, epoch=1), run.part(), run.part("data", 3), run.part(name="forward", color="red"):
        run.tag()
        run.tag("eval", 1, more=2)
        run.record()
    run.tick(1.0, 2.0)
    run.close(0)
    assert seen(run.path).header.closed
    assert seen(run.path).records[0].flags & pyrometer.ring.TAG_BITS["eval"]


BAD = [Bomb(), object(), "x", b"\xff", [], {}, -1, 1e400, float("nan"), 10**400, "\ud800", (1, 2), 1j, lambda: 0]


@pytest.mark.parametrize("name", [name for name in ("run", *StartSettings.__annotations__) if name != "rings"])
def test_one_bad_setting_costs_that_setting(
    name: str, rings: str, seen: ReadRing, capfd: pytest.CaptureFixture[str]
) -> None:
    for value in BAD:
        run = pyrometer.start(**{"run": "r", "rings": rings, name: value})
        assert run.disabled is None, value
        use(run)
        assert seen(run.path).header.count == 3, value
    assert all(line.startswith("pyrometer: ") for line in capfd.readouterr().err.splitlines())


def test_any_value_of_the_folder(capfd: pytest.CaptureFixture[str]) -> None:
    for value in (*BAD, "\0", "", "a" * 5000):
        if isinstance(value, Bomb) or value not in ("x", ""):  # those two are folders that can be made
            use(pyrometer.start("r", rings=value if isinstance(value, str) and len(value) > 1 else Bomb()))
    capfd.readouterr()


def test_unknown_settings_are_named_and_ignored(rings: str, capfd: pytest.CaptureFixture[str]) -> None:
    run = pyrometer.start("r", rings=rings, token_per_step=5)
    assert run.disabled is None
    assert capfd.readouterr().err == "pyrometer: unknown settings ignored: token_per_step\n"


RECORDED = [
    "loss", "grad_norm", "tokens", "flops", "accuracy", "global_batch_size", "sequence_length", "recompute",
    "tokens_per_step", "flops_per_token",
]  # fmt: skip


@pytest.mark.parametrize("name", RECORDED)
def test_any_value_of_a_record(name: str, run: pyrometer.Run, seen: ReadRing) -> None:
    for value in BAD:
        with run.step():
            run.record(**{name: value})
    header = seen(run.path).header
    assert header.count == len(BAD)
    assert header.flops_extra == 0.0
    assert header.tokens_extra == 0


def test_one_bad_value_does_not_cost_the_others(run: pyrometer.Run, seen: ReadRing) -> None:
    with run.step():
        run.record(loss=Bomb(), grad_norm=2.0, tokens=Bomb(), flops=3.0)  # type: ignore[arg-type]
    (record,) = seen(run.path).records
    assert (record.loss, record.grad_norm, record.tokens, record.flops) == (None, 2.0, None, 3.0)


def test_negative_and_infinite_amounts_never_reach_the_sums(rings: str, seen: ReadRing) -> None:
    run = pyrometer.start("r", rings=rings, tokens_per_step=10, flops_per_token=1.0)
    for flops in (float("nan"), float("inf"), -1.0):
        with run.step():
            run.record(flops=flops, tokens=-5)
    header = seen(run.path).header
    assert (header.tokens_extra, header.flops_extra) == (0, 0.0)


@pytest.mark.parametrize("value", BAD)
def test_any_name_of_a_part_or_tag(value: Any, run: pyrometer.Run) -> None:
    run.tag(value)
    with run.step(), run.part(value):
        pass


def test_a_folder_that_is_a_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    run = pyrometer.start("r", rings=str(tmp_path / "file"))
    use(run)
    assert run.disabled
    assert run.path == ""
    assert capfd.readouterr().err.count("\n") == 1


@pytest.mark.skipif(os.geteuid() == 0 and not hasattr(os, "seteuid"), reason="needs an ordinary user")
def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    tmp_path.parent.chmod(0o755)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        run = pyrometer.start("r", rings=str(tmp_path))
        use(run)
    finally:
        if root:
            os.seteuid(0)
        tmp_path.chmod(0o755)
    assert run.disabled == "PermissionError"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ENOMEM, errno.EROFS])
def test_a_full_or_broken_shared_memory_leaves_no_file_behind(
    number: int, rings: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(_ring_file.os, "posix_fallocate", full)
    run = pyrometer.start("r", rings=rings)
    use(run)
    assert run.disabled == "OSError"
    assert list(Path(rings).iterdir()) == []


def test_a_file_size_limit(python: Python, rings: str) -> None:
    script = """
        import resource, pyrometer
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        run = pyrometer.start("r")
        with run.step():
            pass
        print(run.disabled)
    """
    done = python(script)
    assert (done.returncode, done.stdout) == (0, "OSError\n"), done
    assert list(Path(rings).iterdir()) == []


def test_no_descriptor_left(python: Python) -> None:
    script = """
        import resource, os, pyrometer
        resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))
        taken = []
        try:
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            pass
        import pyrometer._environment
        run = pyrometer.start("r")
        with run.step():
            pass
        print(run.disabled is not None)
    """
    done = python(script)
    assert (done.returncode, done.stdout) == (0, "True\n"), done


def test_a_ring_that_is_unlinked_or_cut_from_outside(run: pyrometer.Run) -> None:
    Path(run.path).unlink()
    use(run)


def test_a_number_too_large_is_left_out(rings: str, seen: ReadRing, capfd: pytest.CaptureFixture[str]) -> None:
    run = pyrometer.start("r", rings=rings, tokens_per_step=10**400, flops_per_token=1.0)
    assert (seen(run.path).meta.tokens_per_step, seen(run.path).meta.flops_per_token) == (None, 1.0)
    use(run)
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("pyrometer: run r: tokens_per_step=1000")
    assert line.endswith(" is ignored: give a whole number, such as 4194304")


def test_a_broken_standard_error(rings: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    use(pyrometer.start("r", rings="/proc/nowhere", unknown=1))


def test_hostile_environment(rings: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.setenv(name, "9" * 5000)
    use(pyrometer.start("r", rings=rings))
    capfd.readouterr()


def test_texts_that_are_too_long_are_cut(rings: str, seen: ReadRing) -> None:
    run = pyrometer.start("r", rings=rings, model="m" * 10_000, stage="\N{PILE OF POO}" * 500)
    use(run)
    assert seen(run.path).meta.texts["model"] == "m" * 64
