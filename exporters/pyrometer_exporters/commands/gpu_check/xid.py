"""Experiment i, the last: a program writes out of bounds, as any faulty one does, and its Xid is counted once."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable

from pyrometer_exporters.commands.gpu_check.check import Check, Experiment, Report
from pyrometer_exporters.commands.gpu_check.exporter import Page, exporter
from pyrometer_exporters.commands.gpu_check.place import Place, say

_ERRORS, _INFO = "pyrometer_gpu_xid_errors_total", "pyrometer_gpu_xid_last_info"
_WAIT_SECONDS = 15.0
_SETTLE_SECONDS = 3.0
CHECKS = (
    Check("xid", "Xids after one kernel wrote out of bounds", "one more, with its code (31 on a GPU)"),
    Check("process", "the process named with it", "the program's, or none where the kernel's log can't be read"),
)
# Compiled by the driver itself, so that no compiler is needed: a store to an address that no program has.
_PTX = b"""
.version 7.0
.target sm_75
.address_size 64
.visible .entry fault()
{
    .reg .b64 %address;
    .reg .b32 %value;
    mov.u64 %address, 16;
    mov.u32 %value, 1;
    st.global.u32 [%address], %value;
    ret;
}
\0"""
ILLEGAL_ADDRESS = 700  # CUDA_ERROR_ILLEGAL_ADDRESS


def run(place: Place, report: Report) -> None:
    """Count the Xids before and after."""
    with exporter(place) as ours:
        before = _counts(ours.scrape())
        with place.child("fault") as child:
            said = child.line()
            child.wait(10)
        if said["code"] != ILLEGAL_ADDRESS:
            report.skipped_rest(f"the kernel could not be run: {said}")
            return
        new, page = _new(ours.scrape, before, place.seconds(_SETTLE_SECONDS))
        info = [labels for labels, _ in page.samples(_INFO)]
    report.raw("xids", {"new": new, "info": info, "pid": child.pid, "said": said})
    told = ", ".join(f"Xid {code}: {count:+.0f}" for code, count in new.items()) or "none"
    report.passed("xid", told, ok=len(new) == 1 and set(new.values()) == {1.0})
    named = sorted({labels["pid"] for labels in info} - {""})
    report.passed("process", ", ".join(named) or "none", ok=named in ([], [str(child.pid)]))


def _counts(page: Page) -> dict[str, float]:
    return page.by(_ERRORS, "xid")


def _new(scrape: Callable[[], Page], before: dict[str, float], settle: float) -> tuple[dict[str, float], Page]:
    """Return the Xids that came, once nothing has come for a while."""
    until = time.monotonic() + _WAIT_SECONDS
    while True:
        page = scrape()
        new = {code: value - before.get(code, 0.0) for code, value in _counts(page).items()}
        new = {code: count for code, count in new.items() if count}
        if new or time.monotonic() > until:
            break
        time.sleep(0.5)
    time.sleep(settle)  # a second count of the same Xid, from the other source, would come now
    page = scrape()
    new = {code: value - before.get(code, 0.0) for code, value in _counts(page).items()}
    return {code: count for code, count in new.items() if count}, page


def fault(_place: Place) -> None:
    """Run the faulty kernel in this process; report the driver's answer."""
    step, code = _faulted(ctypes.CDLL("libcuda.so.1"))
    say(code=code, step=step)


def _faulted(cuda: ctypes.CDLL) -> tuple[str, int]:
    """Return the first call that failed, and its code."""
    device, context = ctypes.c_int(), ctypes.c_void_p()
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    calls: tuple[tuple[str, Callable[[], int]], ...] = (
        ("cuInit", lambda: cuda.cuInit(0)),
        ("cuDeviceGet", lambda: cuda.cuDeviceGet(ctypes.byref(device), 0)),
        ("cuDevicePrimaryCtxRetain", lambda: cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)),
        ("cuCtxSetCurrent", lambda: cuda.cuCtxSetCurrent(context)),
        ("cuModuleLoadData", lambda: cuda.cuModuleLoadData(ctypes.byref(module), _PTX)),
        ("cuModuleGetFunction", lambda: cuda.cuModuleGetFunction(ctypes.byref(function), module, b"fault")),
        ("cuLaunchKernel", lambda: cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, None, None)),
        ("cuCtxSynchronize", cuda.cuCtxSynchronize),
    )
    for name, call in calls:
        code = call()
        if code:
            return name, code
    return "", 0


EXPERIMENT = Experiment("i", "Xid", 50, CHECKS, run)
