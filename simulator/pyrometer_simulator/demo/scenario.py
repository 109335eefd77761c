"""The events of the demo. Times are seconds after all programs are up."""

from __future__ import annotations

from dataclasses import dataclass

from pyrometer_simulator.demo.topology import RUN

HOT_NODE, HOT_GPU = "gpu-003", 5
FLAPPING_NODE, FLAPPING_DEVICE = "gpu-006", "mlx5_3"
PULSE_NODE, PULSE_GPU = "gpu-002", 1

# The other job, which reports nothing: NCCL is asked for its state every 30 s, so it is seen moving before it hangs.
HUNG_JOB, HUNG_RANK, HUNG_NODE, HUNG_GPU = 4711, 11, "gpu-008", 3
HANG_AT = 30.0

# A GPU that trips its thermal limit falls from 1980 to about 1200 MHz (an H100's hw_thermal halves the clock at worst).
HOT_CLOCK_MHZ, HOT_CELSIUS = 1200, 93
SLOW_CLOCK_MHZ = 1500

# MFU is compared with at least 200 earlier batches, which take 50 s at 4 steps/s after the ten of the warm-up. Where
# others take the CPU they take longer.
BASELINE_BATCHES = 200
BUSY_BASELINE_SECONDS = 300.0
PULSE_AT = 5.0
FLAP_AT = 8.0
PULSE_SECONDS = 0.2
FLAPS = 3
FLAP_SECONDS = 1.0
FLAP_EVERY_SECONDS = 3.0
HEAT_SECONDS = 28.0

# Time for all to resolve: the rules hold throttling and an MFU drop for 90 s after their end, a flap for 120 s.
RESOLVE_SECONDS = 240.0
# Where others take the CPU, steps stay slow and the drop is true: the time counts from when the run was last slow, but
# is at most this. Slow is below nine tenths of the pace, at which an MFU drop does not fire.
BUSY_RESOLVE_SECONDS = 600.0
SLOW_STEPS_PER_SECOND = 0.9 * 4
POST_SECONDS = 40.0


@dataclass(frozen=True)
class Expected:
    """An incident that the channel must show: which alert, naming whom, and after which fault."""

    alertname: str
    culprit: str
    fault: str
    words: str


_HOT = f"{HOT_NODE} GPU {HOT_GPU}"
_LINK = f"{FLAPPING_NODE} {FLAPPING_DEVICE}"
EXPECTED = (
    Expected("NicLinkFlapping", f"{_LINK}/1", "third flap", f"{_LINK} lost its link three times"),
    Expected("NcclHang", f"{HUNG_NODE} GPU {HUNG_GPU}", "hang", f"rank {HUNG_RANK} of job {HUNG_JOB} hung"),
    Expected("GpuThrottledThermal", _HOT, "heat", f"{_HOT} overheated"),
    Expected("TrainMfuDropped", _HOT, "heat", f"run {RUN} was slower for it"),
)
