"""The comparison with nvidia-smi, over simulated GPUs and a report written by hand in the form of nvidia-smi's."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyrometer_exporters.commands.doctor import main as doctor
from pyrometer_exporters.commands.doctor import nvidia_smi
from pyrometer_exporters.commands.doctor.nvidia_smi_fields import FIELDS, TEXTS
from pyrometer_exporters.node.gpu.collector import COLLECTOR
from pyrometer_kit.errors import UsageError
from pyrometer_simulator.nvml import SimulatedGpus, installed

REPORT = Path(__file__).parent / "nvidia_smi.xml"
Compare = Callable[..., tuple[int, str]]
ECC_ERRORS = {"volatile/sram/uncorrected": 3}


@pytest.fixture
def compare(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Compare:
    """Run the doctor's comparison over one GPU at work; gives exit status and output."""
    monkeypatch.setattr("pyrometer_exporters.commands.doctor.examine.PAUSE_SECONDS", 0.15)
    monkeypatch.setattr("pyrometer_kit.logs.set_up", lambda *_: None)  # it is for a whole process

    def run(
        change: Callable[[str], str] = str,
        flag: str | None = None,
        driver: str = "590.48.01",
        more: tuple[str, ...] = (),
        setup: Callable[[SimulatedGpus], object] = lambda _gpus: None,
        **settings: Any,
    ) -> tuple[int, str]:
        gpus = SimulatedGpus(tmp_path / "gpus", count=1, driver=driver)
        gpus[0].load()
        gpus[0].set(**{"replays": 7, "recovery_action": 3, "repairs": [0, 1], "ecc_errors": ECC_ERRORS} | settings)
        setup(gpus)
        report = tmp_path / "report.xml"
        report.write_text(change(REPORT.read_text().replace("UUID", gpus[0].uuid)))
        paths = [f"--path.{name}={tmp_path}/{name}" for name in ("sysfs", "procfs", "rings", "kmsg", "state")]
        with installed(gpus.path):
            status = doctor.main([*paths, *more, flag or f"--compare-nvidia-smi={report}"])
        return status, capsys.readouterr().out

    return run


def _row(out: str, field: str) -> list[str]:
    (line,) = [line for line in out.splitlines() if f"`{field}`" in line]
    return [cell.strip() for cell in line.strip("|").split("|")]


@pytest.mark.parametrize(
    ("field", "theirs", "ours", "verdict"),
    [
        ("uuid", "1", "1", "same"),
        ("product_name", "NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3", "same"),
        ("serial", "SIMULATED", "SIMULATED", "same"),
        ("driver_version", "590.48.01", "590.48.01", "same"),
        ("pci/pci_bus_id", "0000:18:00.0", "0000:18:00.0", "same"),
        ("product_brand", "NVIDIA", "NVIDIA", "same"),
        ("inforom_version/ecc_object", "7.16", "7.16", "same"),
        ("fabric/clusterUuid", "7a1f1a52-53c4-4b8f-9d5b-0f6f3c2b9e11", "7a1f1a52-53c4-4b8f-9d5b-0f6f3c2b9e11", "same"),
        ("fabric/status", "0", "0", "same"),
        ("fabric/health/bandwidth", "0", "0", "same"),
        ("clocks_event_reasons/clocks_event_reason_gpu_idle", "0", "0", "same"),
        ("clocks_event_reasons/clocks_event_reason_sw_power_cap", "1", "0", "close"),
        (
            "ecc_errors/volatile/sram_uncorrectable_parity+ecc_errors/volatile/sram_uncorrectable_secded",
            "3",
            "3",
            "same",
        ),
        ("ecc_errors/unrepairable_memory", "0", "0", "same"),
        ("remapped_rows/remapped_row_unc_inactive", "0", "", "needs a newer driver"),
        ("clocks/sm_clock", "1980", "1980", "same"),
        ("performance_state", "0", "0", "same"),
        ("temperature/gpu_temp", "61", "62", "close"),
        ("temperature/memory_temp", "", "68", "only Pyrometer"),
        ("gpu_power_readings/average_power_draw", "655.1", "650", "close"),
        ("gpu_power_readings/default_power_limit", "500", "700", "differs"),
        ("pci/pci_gpu_link_info/link_widths/current_link_width", "16", "16", "same"),
        ("pci/replay_counter", "7", "7", "same"),
        ("fb_memory_usage/used", "68001", "68000", "close"),
        ("ecc_mode/current_ecc", "1", "1", "same"),
        ("ecc_errors/volatile/dram_correctable", "3", "0", "differs"),
        ("remapped_rows/remapped_row_pending", "0", "0", "same"),
        ("gpu_recovery_action", "3", "3", "same"),
        ("fabric/state", "3", "3", "same"),
        ("ecc_errors/channel_repair_pending", "0", "0", "same"),
        ("ecc_errors/tpc_repair_pending", "1", "1", "same"),
        (
            "clocks_event_reasons_counters/clocks_event_reasons_counters_hw_therm_slowdown",
            "91.403239",
            "0",
            "differs",
        ),
    ],
)
def test_each_field_is_compared_in_our_unit(compare: Compare, field: str, theirs: str, ours: str, verdict: str) -> None:
    status, out = compare()
    assert status == 1
    assert _row(out, field)[3:] == [theirs, ours, verdict]


def _agree(text: str) -> str:
    text = text.replace(">500.00 W<", ">700.00 W<").replace("91403239", "0")
    return text.replace("<dram_correctable>3<", "<dram_correctable>0<")


def test_values_that_all_agree_end_with_0(compare: Compare) -> None:
    status, out = compare(_agree)
    assert status == 0, out
    assert "differs" not in out
    assert re.search(r"^\d+ same, .*\d+ close", out.splitlines()[-1])


def test_a_line_before_the_document_and_older_names_are_understood(compare: Compare) -> None:
    def older(text: str) -> str:
        text = text.replace("gpu_power_readings", "power_readings").replace("average_power_draw", "power_draw")
        return f"Unable to determine the device handle for GPU0000:2A:00.0: Unknown Error\n{text}"

    _status, out = compare(older)
    assert _row(out, "power_readings/power_draw")[3:] == ["655.1", "650", "close"]


def _with(element: str, text: str) -> Callable[[str], str]:
    return lambda report: re.sub(f"<{element}>.*</{element}>", text, report, flags=re.DOTALL)


def test_before_535_the_limit_in_force_is_not_the_one_asked_for(compare: Compare) -> None:
    limits = """<power_readings><power_limit>650.00 W</power_limit>
        <enforced_power_limit>600.00 W</enforced_power_limit></power_readings>"""
    _status, out = compare(
        lambda text: re.sub("<gpu_power_readings>.*</gpu_power_readings>", limits, text, flags=re.DOTALL)
    )
    assert _row(out, "power_readings/power_limit")[2:4] == ["`DCGM_FI_DEV_POWER_MGMT_LIMIT`", "650"]
    assert _row(out, "power_readings/enforced_power_limit")[2:4] == ["`DCGM_FI_DEV_ENFORCED_POWER_LIMIT`", "600"]


def test_errors_of_memory_are_compared_by_place_where_a_board_before_turing_has_them(compare: Compare) -> None:
    errors = """<ecc_errors><volatile><single_bit><device_memory>3</device_memory><register_file>1</register_file>
        <l2_cache>2</l2_cache><total>4</total></single_bit><double_bit><total>0</total></double_bit></volatile></ecc_errors>"""
    known = {"volatile/device_memory/corrected": 3, "volatile/register_file/corrected": 1}
    _status, out = compare(_with("ecc_errors", errors), ecc_errors=known)
    assert _row(out, "ecc_errors/volatile/single_bit/total")[3:] == ["4", "4", "same"]
    assert _row(out, "ecc_errors/volatile/single_bit/device_memory")[3:] == ["3", "3", "same"]
    assert _row(out, "ecc_errors/volatile/single_bit/register_file")[3:] == ["1", "1", "same"]
    assert _row(out, "ecc_errors/volatile/single_bit/l2_cache")[3:] == ["2", "0", "differs"]
    assert _row(out, "ecc_errors/volatile/double_bit/total")[3:] == ["0", "0", "same"]
    assert "dram_correctable" not in out  # what nvidia-smi doesn't speak of is no row


def test_each_gpu_instance_has_its_memory_compared_once(compare: Compare) -> None:
    device = "<mig_device><gpu_instance_id>{}</gpu_instance_id><fb_memory_usage><used>{} MiB</used></fb_memory_usage>"
    devices = "".join(f"{device.format(*each)}</mig_device>" for each in ((7, 12), (9, 900), (9, 900)))
    mig = [{"id": number, "profile": "1g.10gb", "used_mib": 12, "total_mib": 9984} for number in (7, 9)]
    _status, out = compare(lambda text: text.replace("<pci>", f"<mig_devices>{devices}</mig_devices><pci>"), mig=mig)
    rows = [line for line in out.splitlines() if "MIG" in line and "fb_memory_usage/used" in line]
    assert rows == [
        "| 0 MIG 7 | `fb_memory_usage/used` | `DCGM_FI_DEV_FB_USED` | 12 | 12 | same |",
        "| 0 MIG 9 | `fb_memory_usage/used` | `DCGM_FI_DEV_FB_USED` | 900 | 12 | differs |",
    ]


def test_what_an_older_driver_tells_nvidia_smi_alone_is_no_fault_of_ours(compare: Compare) -> None:
    def of_535(text: str) -> str:
        return _with("fabric", "")(_agree(text)).replace("590.48.01", "535.183.01")

    status, out = compare(of_535, driver="535.183.01")
    assert _row(out, "temperature/gpu_temp_tlimit")[3:] == ["25", "", "needs a newer driver"]
    assert _row(out, "gpu_recovery_action")[3:] == ["3", "", "needs a newer driver"]
    assert status == 0, out


def test_what_changes_while_nvidia_smi_is_at_work_is_no_difference(
    compare: Compare, monkeypatch: pytest.MonkeyPatch
) -> None:
    asleep: list[SimulatedGpus] = []

    def sleeps(gpus: SimulatedGpus) -> None:
        gpus[0].idle()
        asleep.append(gpus)

    def asked() -> str:
        asleep[0][0].load()
        return _agree(REPORT.read_text().replace("UUID", asleep[0][0].uuid))

    monkeypatch.setattr(nvidia_smi, "_asked", asked)
    status, out = compare(flag="--compare-nvidia-smi", setup=sleeps)
    assert _row(out, "pci/pci_gpu_link_info/pcie_gen/current_link_gen")[3:] == ["5", "5", "same"]
    assert status == 0, out


def test_a_gpu_that_only_nvidia_smi_can_read_is_told(compare: Compare, tmp_path: Path) -> None:
    def lost(gpus: SimulatedGpus) -> None:
        gpus[0].lose()
        folder = tmp_path / "procfs/driver/nvidia/gpus/0000:18:00.0"
        folder.mkdir(parents=True)
        (folder / "information").write_text(f"GPU UUID: \t {gpus[0].uuid}\n")

    status, out = compare(setup=lost)
    assert _row(out, "uuid")[3:] == ["1", "0", "differs"]
    assert status == 1


def test_an_older_board_has_its_retired_pages_compared(compare: Compare) -> None:
    pages = """<retired_pages>
        <multiple_single_bit_retirement><retired_count>2</retired_count></multiple_single_bit_retirement>
        <double_bit_retirement><retired_count>1</retired_count></double_bit_retirement>
        <pending_retirement>Yes</pending_retirement></retired_pages>"""
    retired = {"sbe": 2, "dbe": 0, "pending": 1}
    _status, out = compare(lambda text: text.replace("<remapped_rows>", f"{pages}<remapped_rows>"), retired=retired)
    assert _row(out, "retired_pages/multiple_single_bit_retirement/retired_count")[3:] == ["2", "2", "same"]
    assert _row(out, "retired_pages/double_bit_retirement/retired_count")[3:] == ["1", "0", "differs"]
    assert _row(out, "retired_pages/pending_retirement")[3:] == ["1", "1", "same"]


def test_what_nvidia_smi_alone_has_is_a_fault_of_ours(compare: Compare) -> None:
    status, out = compare(lambda text: text.replace("<fan_speed>N/A", "<fan_speed>30 %"))
    assert _row(out, "fan_speed")[3:] == ["30", "", "only nvidia-smi"]
    assert status == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it is empty"),
        ("No devices were found", "it says 'No devices were found'"),
        (
            "\nFailed to initialize NVML: Driver/library version mismatch\nNVML library version: 595.45",
            "it says 'Failed to initialize NVML: Driver/library version mismatch'",
        ),
        ("<nvidia_smi_log>", "it says '<nvidia_smi_log>'"),
        ("<?xml version='1.0'?><nvidia_smi_log><gpu>", "no element found"),
        ("<?xml version='1.0'?><html/>", "its root is html"),
        ("\x00\x01\ufffd", "it says "),
    ],
)
def test_a_file_that_is_no_report_is_one_line_that_quotes_it_and_2(tmp_path: Path, text: str, said: str) -> None:
    report = tmp_path / "report.xml"
    report.write_text(text)
    with pytest.raises(UsageError) as error:
        nvidia_smi.read(report)
    assert f"not the output of nvidia-smi -q -x: {said}" in str(error.value)
    assert "\n" not in str(error.value)


def test_nvidia_smi_itself_is_asked_and_what_it_says_besides_is_no_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "nvidia-smi"
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    (tmp_path / "report.xml").write_text(REPORT.read_text())
    program.write_text(f"#!/bin/sh\n[ \"$*\" = '-q -x' ] && cat {tmp_path}/report.xml\n")
    program.chmod(0o755)
    assert len(nvidia_smi.read(None)) == 1
    program.write_text("#!/bin/sh\nprintf 'NVML: \\377 Unknown Error'; exit 255\n")
    with pytest.raises(UsageError, match=r"nvidia-smi: not the output of .* it says 'NVML: . Unknown Error'"):
        nvidia_smi.read(None)


def test_without_nvidia_smi_it_says_what_to_do(compare: Compare, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert compare(flag="--compare-nvidia-smi")[0] == 2


def test_an_nvidia_smi_that_hangs_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(nvidia_smi, "SECONDS", 0.1)
    with pytest.raises(UsageError, match="did not finish within"):
        nvidia_smi.read(None)


def test_a_report_of_another_machine_is_refused(compare: Compare) -> None:
    assert compare(lambda text: text.replace("<uuid>", "<uuid>GPU-of-another-"))[0] == 2


def _with_another(text: str) -> str:
    other = "<gpu><uuid>GPU-2</uuid><pci><pci_bus_id>00000000:2A:00.0</pci_bus_id></pci></gpu>"
    return text.replace("</gpu>\n</nv", f"</gpu>{other}\n</nv")


@pytest.mark.parametrize("name", ["1", "0000:2a:00.0", "GPU-2"])
def test_a_gpu_that_the_flags_leave_out_is_not_missed(compare: Compare, name: str) -> None:
    status, out = compare(lambda text: _with_another(_agree(text)), more=(f"--collector.gpu.device-exclude={name}",))
    assert "GPU-2" not in out
    assert status == 0, out


def test_a_gpu_that_only_nvidia_smi_has_is_told(compare: Compare) -> None:
    status, out = compare(_with_another)
    assert status == 1
    assert "| GPU-2 | `uuid` | `pyrometer_gpu_up` | 1 |  | only nvidia-smi |" in out


def test_the_rows_of_a_field_stand_together_and_equal_gpus_share_one() -> None:
    rows = [
        nvidia_smi.Compared(gpu, field, *values, verdict="same")
        for gpu in ("0", "1", "2")
        for field, values in (("a = b", (gpu[:1].replace("2", "0"),) * 2), ("c = d", ("7", "7")))
    ]
    assert list(nvidia_smi.table(rows))[2:-2] == [
        "| 0,2 | `a` | `b` | 0 | 0 | same |",
        "| 1 | `a` | `b` | 1 | 1 | same |",
        "| 0,1,2 | `c` | `d` | 7 | 7 | same |",
    ]


def test_every_field_names_a_family_that_is_served() -> None:
    served = {family.name for family in COLLECTOR.families}
    assert {field.family for field in (*FIELDS, *TEXTS)} <= served
