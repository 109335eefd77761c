"""The state of a simulated GPU at a time, computed from its record, so that counters grow without a writer."""

from __future__ import annotations

import zlib

from pyrometer_simulator.nvml.state_file import CAPABILITIES, REASON_COUNT, GpuRecord


class GpuState:
    """A GPU's record, read at the monotonic time ``now``."""

    def __init__(self, record: GpuRecord, now: float, noise: float = 0.0, seed: int = 0, mig_device: int = 0) -> None:
        self.record = record
        self.mig_device = mig_device
        """The number of the MIG device that the handle denotes, from 1 on; 0 for the whole GPU."""
        self._now = now
        self._noise = noise
        self._seed = seed

    def has(self, capability: str) -> bool:
        """Return whether the GPU has a capability (of CAPABILITIES)."""
        return not self.record.lacks & (1 << CAPABILITIES.index(capability))

    def reasons(self) -> int:
        """Return the bitmask of clock-event reasons."""
        return int(self.record.reasons) | (int(self.record.pulse_reasons) if self._in_pulse() else 0)

    def reason_seconds(self, bit_number: int) -> float:
        """Return the seconds that a reason has been set since the driver was loaded."""
        record, bit = self.record, 1 << bit_number
        held = float(record.reason_seconds[bit_number])
        if record.reasons & bit:
            return held + self._elapsed()
        return held + (self._pulse_seconds() if record.pulse_reasons & bit else 0.0)

    def sm_clock(self) -> int:
        """Return the SM clock in MHz."""
        if self._in_pulse() and self.record.pulse_sm_clock:
            return int(self.record.pulse_sm_clock)
        return int(self.record.throttled_sm_clock or self.record.sm_clock)

    def temperature(self) -> int:
        """Return the temperature in degrees Celsius."""
        return round(self._noisy("temperature", self.record.throttled_temperature or self.record.temperature))

    def power_mw(self) -> int:
        """Return the power draw with noise; the energy counter integrates it without."""
        return round(self._noisy("power", self._power_mw()))

    def utilisation(self) -> int:
        """Return the utilisation in percent."""
        return min(100, round(self._noisy("utilisation", self.record.utilisation)))

    def energy_mj(self) -> int:
        """Return the energy in millijoules since the driver was loaded."""
        return int(self.record.energy_mj + self._power_mw() * self._elapsed())

    def fold(self) -> None:
        """Store the sums as of now in the record; call it before anything changes that they depend on."""
        record = self.record
        energy = self._power_mw() * self._elapsed()
        seconds = [self.reason_seconds(bit) for bit in range(REASON_COUNT)]
        record.reason_seconds[:] = seconds
        record.energy_mj += energy
        record.since = self._now

    def _power_mw(self) -> int:
        return int(self.record.throttled_power_mw or self.record.power_mw)

    def _elapsed(self) -> float:
        return max(0.0, self._now - float(self.record.since))

    def _in_pulse(self) -> bool:
        into = self._now - float(self.record.pulse_start)
        if into < 0:
            return False
        every = float(self.record.pulse_every)
        return (into % every if every else into) < float(self.record.pulse_seconds)

    def _pulse_seconds(self) -> float:
        """Return the seconds within pulses since the sums were stored."""
        return self._pulsed_until(self._now) - self._pulsed_until(float(self.record.since))

    def _pulsed_until(self, until: float) -> float:
        length, every = float(self.record.pulse_seconds), float(self.record.pulse_every)
        into = max(0.0, until - float(self.record.pulse_start))
        rounds, rest = divmod(into, every) if every else (0.0, into)
        return rounds * length + min(rest, length)

    def _noisy(self, what: str, value: float) -> float:
        if not self._noise:
            return value
        # The same for all readers within a tenth of a second, and in every run with the same seed.
        key = f"{self._seed} {self.record.uuid!r} {what} {int(self._now * 10)}"
        return value * (1 + self._noise * (zlib.crc32(key.encode()) / 0x7FFFFFFF - 1))
