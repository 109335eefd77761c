"""Parsers against outputs of real tools, several versions each, and against whatever else a tool may print."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrometer_exporters.commands.test import dcgm, parsers
from pyrometer_exporters.commands.test.reading import Reading, clean, losses

RECORDED = Path(__file__).parent / "recorded"
ALL = (
    dcgm.read,
    parsers.nvbandwidth,
    parsers.nccl,
    parsers.nccl_pair,
    parsers.ib_write_bw,
    parsers.burn,
    parsers.fio,
)


def recorded(name: str) -> str:
    return clean((RECORDED / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("read", "name", "values"),
    [
        (parsers.nccl, "nccl-h100.txt", {"nccl_all_reduce": 470.73}),
        (parsers.nccl, "nccl-2.18-rtx5090-mpi.txt", {"nccl_all_reduce": 2.30}),
        (parsers.nccl, "nccl-one-sided-h200nvl.txt", {"nccl_all_reduce": 68.66}),
        (parsers.nccl_pair, "nccl-pair-h100.txt", {"nccl_all_reduce_pair": 338.82}),
        (parsers.ib_write_bw, "ib-ndr.txt", {"ib_write_bw": 392.34}),
        (parsers.ib_write_bw, "ib-200.txt", {"ib_write_bw": 34.41}),
        (parsers.burn, "gpu-burn-h100.txt", {"burn": 51.402}),
        (parsers.nvbandwidth, "nvbandwidth-0.8-h100.json",
         {"nvbandwidth_host_to_device_memcpy_ce": 25.94, "nvbandwidth_device_to_device_memcpy_write_ce": 276.07}),
        (dcgm.read, "dcgm-4.5.3.json", {}),
        (parsers.fio, "fio-3.42.txt", {"fio_write": 2.147483648}),
        (parsers.fio, "fio-2.json", {"fio_read": 0.035790848}),
    ],
)  # fmt: skip
def test_a_recorded_output_of_a_healthy_node(
    read: Callable[[str], Reading], name: str, values: dict[str, float]
) -> None:
    found = read(recorded(name))
    assert found.problems == ()
    assert {result.test: pytest.approx(result.value) for result in found.results} == values


def test_nccl_tests_without_a_root_column_are_read() -> None:
    assert parsers.nccl(
        "  8388608  2097152  float  sum  10314  104.11  195.20  0e+00  10339  103.85  194.73  0e+00\n"
        "# Out of bounds values : 0 OK\n"
    ).results[0].value == pytest.approx(195.20)


def test_wrong_values_are_a_fault_however_fast_they_were() -> None:
    text = recorded("nccl-h100.txt").replace("values : 0 OK", "values : 12 FAILED")
    assert [problem.words for problem in parsers.nccl(text).problems] == ["12 wrong values: data was corrupted"]


def test_a_test_case_of_nvbandwidth_is_a_fault_by_the_drivers_word_alone() -> None:
    text = recorded("nvbandwidth-0.8-h100.json")
    broken = parsers.nvbandwidth(text.replace('"Waived"', '"Error: uncorrectable ECC error encountered"'))
    assert [problem.words for problem in broken.problems] == [
        "device_to_device_memcpy_read_sm: Error: uncorrectable ECC error encountered"
    ]
    unable = parsers.nvbandwidth(text.replace('"Waived"', '"Not Found"'))
    assert (unable.problems, unable.unable) == ((), "device_to_device_memcpy_read_sm: Not Found")


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("g1: Test CUDA failure common.cu:303 'CUDA_ERROR_ECC_UNCORRECTABLE'", ""),
        ("g1:3:9 [5] NCCL WARN Cuda failure 'uncorrectable NVLink error detected during the execution'", "GPU 5"),
        ("Unable to determine the device handle for GPU0000:3B:00.0: GPU is lost.", "GPU 0000:3B:00.0"),
        ("Unable to burn GPU #3: DriverError(CUDA_ERROR_ECC_UNCORRECTABLE)", "GPU 3"),
        ("GPU 2: 0 uncorrectable ECC errors", None),
        ("Uncorrectable ECC errors: 0", None),
        ("no uncorrectable ECC error was found", None),
        ("CUDA error: an illegal memory access was encountered", None),
    ],
)
def test_what_a_driver_says_of_broken_hardware_is_a_loss_of_the_gpu_that_it_names(line: str, part: str | None) -> None:
    assert [problem.part for problem in losses(line)] == ([] if part is None else [part])


def test_the_same_loss_of_two_gpus_names_both() -> None:
    text = "".join(
        f"g1:3:9 [{gpu}] NCCL WARN Cuda failure 'uncorrectable ECC error encountered'\n" for gpu in (2, 5, 2)
    )
    assert [problem.part for problem in losses(text)] == ["GPU 2", "GPU 5"]


@pytest.mark.parametrize("read", ALL)
@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "Segmentation fault\n", '{"DCGM Diagnostic": {"test_categories": []}}']
)
def test_an_output_without_results_is_an_error_and_no_pass(read: Callable[[str], Reading], text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read(text)


def test_a_diagnostic_that_skipped_everything_is_no_pass() -> None:
    with pytest.raises(ValueError, match="skipped"):
        dcgm.read(recorded("dcgm-4.5.3.json").replace('"Pass"', '"Skip"'))


@given(name=st.sampled_from(sorted(path.name for path in RECORDED.glob("*.[tj]*"))), cut=st.integers(0, 2000),
       put=st.text(max_size=8))  # fmt: skip
def test_damaged_outputs_are_read_or_refused(name: str, cut: int, put: str) -> None:
    text = recorded(name)
    damaged = text[: cut % len(text)] + put + text[cut % len(text) + len(put) :]
    for read in ALL:
        try:
            found = read(damaged)
        except ValueError:
            continue
        assert all(math.isfinite(result.value) and result.value >= 0 for result in found.results)
