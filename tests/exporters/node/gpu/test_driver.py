"""The driver as a whole: its versions, its error codes, and letting go of it."""

from __future__ import annotations

import errno
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import until

from pyrometer_exporters.node.gpu import release
from pyrometer_exporters.node.gpu.clock_events import version_numbers
from pyrometer_exporters.node.gpu.driver_versions import (
    differ,
    installed_library,
    kernel_module_version,
    library_folder,
)
from pyrometer_exporters.node.gpu.nvml import Code
from pyrometer_exporters.node.gpu.sampler import MAX_GAP_SECONDS
from pyrometer_simulator.nvml.installation import Installation

# nvmlReturn_t of nvml.h (CUDA 13.3), NVML_ERROR_ left out, and what we call those of other names.
CODES = {
    1: "uninitialized", 2: "invalid_argument", 3: "not_supported", 4: "no_permission", 5: "already_initialized",
    6: "not_found", 7: "insufficient_size", 8: "insufficient_power", 9: "driver_not_loaded", 10: "timeout",
    11: "irq_issue", 12: "no_driver", 13: "function_not_found", 14: "corrupted_inforom", 15: "gpu_is_lost",
    16: "reset_required", 17: "operating_system", 18: "driver_version_mismatch", 19: "in_use", 20: "out_of_memory",
    21: "no_data", 22: "vgpu_ecc_not_supported", 23: "insufficient_resources", 24: "freq_not_supported",
    25: "argument_version_mismatch", 26: "deprecated", 27: "not_ready", 28: "gpu_not_found", 29: "invalid_state",
    999: "unknown_error",
}  # fmt: skip
DRIVERS = (
    "535.183.01",
    "550.54.15",
    "570.86.15",
    "575.51.03",
    "580.65.06",
    "580.82.07",
    "590.48.01",
    "610.43",
    "615.71",
)


def test_every_code_of_the_header_has_its_word() -> None:
    assert {int(code): code.name.lower() for code in Code} == CODES


@pytest.mark.parametrize("code", CODES)
def test_any_error_of_one_gpu_has_its_reason_and_leaves_the_neighbours_alone(make_node: Any, code: int) -> None:
    node = make_node()
    healthy = node.scrape()
    node.gpus[1].fail(code)
    for _ in range(3):
        scrape = node.scrape()
        assert scrape.downs == {"1": CODES[code]}
        assert scrape.value("pyrometer_gpu_up", gpu="1") == 0
        for neighbour in ("0", "2"):
            assert scrape.value("pyrometer_gpu_up", gpu=neighbour) == 1
            assert scrape.names_of(neighbour) >= healthy.names_of(neighbour)
    node.gpus[1].recover()
    assert node.scrape().downs == {}
    assert node.library.calls["nvmlInitWithFlags"] == 1


@pytest.mark.parametrize("code", CODES)
def test_any_error_of_the_driver_is_named_and_passes(make_node: Any, code: int) -> None:
    node = make_node(still=True, setup=lambda gpus: gpus.fail_init(code))
    assert node.scrape().downs == {"nvml": CODES[code]}
    node.gpus.fail_init(0)
    assert node.scrape_every(1).value("pyrometer_gpu_up", gpu="0") == 1


@pytest.mark.parametrize("driver", DRIVERS)
def test_on_every_driver_a_throttle_is_timed_by_its_own_counter_or_by_the_sampler(make_node: Any, driver: str) -> None:
    node = make_node(count=1, driver=driver)
    first = node.scrape()
    assert first.downs == {}
    assert first.value("pyrometer_gpu_info", gpu="0", driver=driver) == 1
    for reason in ("sw_thermal", "hw_thermal", "hw_power_brake"):
        assert first.value("pyrometer_gpu_clock_event_seconds_total", reason=reason) == 0
    seconds = "pyrometer_gpu_clock_event_seconds_total"
    start = time.monotonic()
    node.gpus[0].throttle("hw_power_brake")
    until(lambda: node.scrape().value(seconds, reason="hw_power_brake") >= 0.1)
    scrape = node.scrape()
    method = "counter" if version_numbers(driver) >= (575,) else "sampled"
    assert scrape.value("pyrometer_gpu_clock_event_method_info", reason="hw_power_brake", method=method) == 1
    assert 0.1 <= scrape.value(seconds, reason="hw_power_brake") <= time.monotonic() - start + MAX_GAP_SECONDS
    assert scrape.value(seconds, reason="hw_thermal") == 0


def _module(tmp_path: Path, line: str) -> Path:
    folder = tmp_path / "proc/driver/nvidia"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "version").write_text(f"NVRM version: {line}\nGCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n")
    return tmp_path / "proc"


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024", "550.54.15"),
        ("NVIDIA UNIX Open Kernel Module for x86_64  590.48.01  Release Build  (dvs-builder@U22)", "590.48.01"),
        ("NVIDIA UNIX Open Kernel Module for aarch64  610.43  Release Build", "610.43"),
        ("something else", ""),
    ],
)
def test_the_kernel_modules_version_is_read_from_procfs(tmp_path: Path, line: str, version: str) -> None:
    assert kernel_module_version(_module(tmp_path, line)) == version


@pytest.mark.parametrize(
    ("library", "module", "mismatch"),
    [
        ("13.590.48.01", "590.48.01", False),
        ("590.48.01", "590.48.01", False),
        ("12.550.54", "550.54.15", False),
        ("13.590.48.01", "580.82.07", True),
        ("13.590.48.01", "590.44.01", True),
        ("", "590.48.01", None),
        ("13.590.48.01", "", None),
    ],
)
def test_library_and_module_are_compared_by_the_drivers_version(
    library: str, module: str, mismatch: bool | None
) -> None:
    assert differ(library, module) is mismatch


def test_a_driver_upgraded_under_a_running_module_is_told_with_both_versions(make_node: Any, tmp_path: Path) -> None:
    _module(tmp_path, "NVIDIA UNIX x86_64 Kernel Module  580.82.07  Tue")
    scrape = make_node(setup=lambda gpus: gpus.upgrade_library("13.590.48.01")).scrape()
    assert scrape.downs == {"nvml": "driver_version_mismatch"}
    assert scrape.values("pyrometer_gpu_driver_info") == {("", "13.590.48.01", "580.82.07"): 1}
    assert scrape.values("pyrometer_gpu_driver_mismatch") == {(): 1}


def test_versions_that_agree_are_no_mismatch(make_node: Any, tmp_path: Path) -> None:
    _module(tmp_path, "NVIDIA UNIX x86_64 Kernel Module  590.48.01  Tue")
    scrape = make_node().scrape()
    assert scrape.values("pyrometer_gpu_driver_info") == {("590.48.01", "13.590.48.01", "590.48.01"): 1}
    assert scrape.values("pyrometer_gpu_driver_mismatch") == {(): 0}


def test_gpus_that_all_call_the_driver_gone_are_believed(make_node: Any) -> None:
    node = make_node(still=True, scraped=True)
    for gpu in node.gpus:
        gpu.fail(9)
    node.scrape()
    for gpu in node.gpus:
        gpu.recover()
    scrape = node.scrape_every(60, times=2)
    assert scrape.downs == {}
    assert node.library.calls["nvmlInitWithFlags"] == 2
    assert node.library.unsafe_shutdowns == 0


def test_a_driver_that_was_reloaded_is_not_connected_to_under_a_call_that_hangs(make_node: Any) -> None:
    node = make_node(still=True, scraped=True)
    node.gpus[1].hang()
    node.scrape()
    node.gpus.reload_driver()
    for _ in range(3):
        node.clock.now += 60
        scrape = node.scrape(1)
    assert scrape.downs == {
        "nvml": "earlier_call_hangs",
        "0": "earlier_call_hangs",
        "1": "deadline",
        "2": "earlier_call_hangs",
    }
    assert node.library.calls["nvmlInitWithFlags"] == 1
    node.gpus[1].recover()
    until(lambda: node.scrape().downs == {})
    assert node.library.calls["nvmlInitWithFlags"] == 2
    assert node.library.unsafe_shutdowns == 0


class TestRelease:
    """The file gpu-release: made by whoever wants to reset a GPU."""

    def test_gpus_are_let_go_on_request_and_taken_again_after_it(self, make_node: Any, state: Path) -> None:
        node = make_node(state=state)
        assert node.scrape().value("pyrometer_gpu_released") == 0
        (state / "gpu-release").touch()
        until((state / "gpu-released").exists)
        assert node.library.calls["nvmlShutdown"] == 1
        before = dict(node.library.calls)
        _wait_for_turns(node, 4)
        scrape = node.scrape()
        assert node.library.calls == before  # neither scrape nor sampler touches the driver
        assert scrape.value("pyrometer_gpu_released") == 1
        assert scrape.values("pyrometer_gpu_up") == {}
        assert scrape.downs == dict.fromkeys(("nvml", "0", "1", "2"), "released")
        (state / "gpu-release").unlink()
        until(lambda: not (state / "gpu-released").exists())
        until(lambda: node.scrape().downs == {})
        assert node.library.unsafe_shutdowns == 0

    def test_a_restarted_exporter_leaves_them_alone(self, make_node: Any, state: Path) -> None:
        (state / "gpu-release").touch()
        node = make_node(state=state)
        assert node.scrape().value("pyrometer_gpu_released") == 1
        assert "nvmlInitWithFlags" not in node.library.calls

    def test_a_forgotten_request_ends(self, make_node: Any, state: Path, caplog: pytest.LogCaptureFixture) -> None:
        (state / "gpu-release").touch()
        hour_ago = time.time() - 3600
        os.utime(state / "gpu-release", (hour_ago, hour_ago))
        node = make_node(state=state)
        assert node.scrape().downs == {}
        assert "forgotten" in caplog.text

    def test_a_call_under_way_is_waited_for_and_never_cut(
        self, make_node: Any, state: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        node = make_node(state=state, scraped=True)
        node.gpus[1].hang()
        node.scrape()
        (state / "gpu-release").touch()
        until(lambda: node.scrape().downs.get("0") == "releasing")
        until(lambda: "a call to the driver hangs" in caplog.text)
        scrape = node.scrape()
        assert scrape.downs == {"nvml": "releasing", "0": "releasing", "1": "deadline", "2": "releasing"}
        assert list(scrape.values("pyrometer_gpu_up")) == [("1", node.gpus[1].uuid)]
        assert scrape.value("pyrometer_gpu_released") == 0
        assert not (state / "gpu-released").exists()
        assert "nvmlShutdown" not in node.library.calls
        node.gpus[1].recover()
        until((state / "gpu-released").exists)
        assert node.scrape().downs == dict.fromkeys(("nvml", "0", "1", "2"), "released")
        assert node.library.unsafe_shutdowns == 0

    def test_withdrawn_while_a_call_hangs_it_leaves_the_healthy_gpus_as_they_were(
        self, make_node: Any, state: Path
    ) -> None:
        node = make_node(state=state, scraped=True)
        node.gpus[1].hang()
        node.scrape()
        (state / "gpu-release").touch()
        until(lambda: node.scrape().downs.get("0") == "releasing")
        (state / "gpu-release").unlink()
        until(lambda: node.scrape().downs == {"1": "deadline"})
        assert node.scrape().value("DCGM_FI_DEV_SM_CLOCK", gpu="2") == 345
        node.gpus[1].recover()
        until(lambda: node.scrape().downs == {})
        assert node.library.calls["nvmlInitWithFlags"] == 1
        assert node.library.unsafe_shutdowns == 0

    def test_a_link_in_place_of_the_answer_is_not_followed(
        self, make_node: Any, state: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        node = make_node(state=state, scraped=True)
        (state / "precious").write_text("kept")
        (state / "gpu-released").symlink_to(state / "precious")
        (state / "gpu-release").touch()
        until(lambda: "gpu-release: " in caplog.text)
        assert node.library.calls["nvmlShutdown"] == 1
        assert (state / "precious").read_text() == "kept"

    def test_a_disk_that_takes_no_answer_costs_no_metrics_and_is_told_once(
        self, make_node: Any, state: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tries = []

        def full(*_: object) -> None:
            tries.append(1)
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(release.ReleaseWatch, "_answer", full)
        (state / "gpu-release").touch()
        node = make_node(state=state)
        assert node.scrape().downs["nvml"] == "released"
        until(lambda: len(tries) >= 4)
        assert caplog.text.count("No space left") == 1
        (state / "gpu-release").unlink()
        until(lambda: node.scrape().downs == {})

    def test_it_holds_while_scrapes_come_from_all_sides(self, make_node: Any, state: Path) -> None:
        node = make_node(state=state, scraped=True)

        def ask_and_withdraw() -> None:
            for _ in range(3):
                (state / "gpu-release").touch()
                until((state / "gpu-released").exists)
                (state / "gpu-release").unlink()
                until(lambda: not (state / "gpu-released").exists())

        thread = threading.Thread(target=ask_and_withdraw)
        thread.start()
        while thread.is_alive():
            node.scrape()
        assert node.library.calls["nvmlShutdown"] >= 3
        assert node.library.unsafe_shutdowns == 0
        until(lambda: node.scrape().downs == {})


def _wait_for_turns(node: Any, turns: int) -> None:
    """Wait until the sampler has had so many turns."""
    due = node.collector._shared.sampler._stretches.ends
    until(lambda: node.collector._shared.sampler._stretches.ends >= due + turns / 20)


def test_packages_that_are_exchanged_under_a_running_exporter_are_a_mismatch(make_node: Any, tmp_path: Path) -> None:
    driver = Installation(tmp_path / "proc", tmp_path / "lib", "590.48.01")
    node = make_node()
    assert node.scrape().values("pyrometer_gpu_driver_mismatch") == {(): 0}
    driver.install("590.61.02")
    scrape = node.scrape()
    assert scrape.values("pyrometer_gpu_driver_info") == {("590.48.01", "590.61.02", "590.48.01"): 1}
    assert scrape.values("pyrometer_gpu_driver_mismatch") == {(): 1}
    assert scrape.values("pyrometer_gpu_up", gpu="0") == {("0", node.gpus[0].uuid): 1}


@pytest.mark.parametrize(
    ("link", "version"),
    [("libnvidia-ml.so.590.48.01", "590.48.01"), ("libnvidia-ml.so.1.bak", ""), (None, "")],
    ids=["a version", "another name", "while it is exchanged"],
)
def test_the_installed_library_is_the_one_that_a_new_process_would_load(
    tmp_path: Path, link: str | None, version: str
) -> None:
    if link:
        (tmp_path / "libnvidia-ml.so.1").symlink_to(link)
    assert installed_library(tmp_path) == version


@pytest.mark.parametrize(
    ("line", "folder"),
    [
        ("7f10-7f20 r-xp 00000000 fd:01 1312   /usr/lib64/libnvidia-ml.so.590.48.01", Path("/usr/lib64")),
        ("7f10-7f20 r-xp 00000000 fd:01 1312   /opt/nv libs/libnvidia-ml.so.590.48.01 (deleted)", Path("/opt/nv libs")),
        ("7f10-7f20 r-xp 00000000 fd:01 1312   /usr/lib64/libcuda.so.590.48.01", None),
    ],
)
def test_the_folder_of_the_library_is_where_this_process_has_it_from(
    tmp_path: Path, line: str, folder: Path | None
) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self/maps").write_text(f"{line}\n7f30-7f40 r-xp 00000000 00:00 0\n")
    assert library_folder(tmp_path) == folder


def test_a_process_whose_libraries_cant_be_seen_has_no_folder_of_them(tmp_path: Path) -> None:
    assert library_folder(tmp_path) is None
