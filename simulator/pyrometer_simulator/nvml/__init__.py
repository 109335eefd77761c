"""A simulated NVIDIA driver: GPUs whose state lies in a file, and the library that reads it under pynvml.

gpus = SimulatedGpus(Path("gpus.bin"), count=8)       # the director's process
gpus[5].load(utilisation=99, power_watts=650)
gpus[5].throttle("hw_thermal", sm_clock=1200, temperature=91)

with installed(Path("gpus.bin")):                     # the exporter's process, or a test
    pynvml.nvmlInit()
"""

from pyrometer_simulator.nvml.gpus import SimulatedGpu, SimulatedGpus
from pyrometer_simulator.nvml.library import FakeLibrary, installed

__all__ = ["FakeLibrary", "SimulatedGpu", "SimulatedGpus", "installed"]
