"""When to connect to the driver anew for a GPU that came since: back from a virtual machine, the bus, another driver.

NVML makes its list of GPUs in nvmlInit and never again in that process, so that a GPU which the driver took later isn't
there for a connection from before. (DCGM, too, shuts NVML down and initialises it to attach GPUs.) To connect anew
costs all GPUs a moment without samples. So it is done once for each time that the driver takes a GPU, and a few times
more, ever less often, where NVML still doesn't present it: a container may see a bus with GPUs that it isn't given, and
a driver may hold a GPU that it was told to leave out. A GPU that is ill is none that came: its driver never let it go.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple, Protocol

from pyrometer_exporters.node.gpu.driver import Link

log = logging.getLogger(__name__)

# A driver's name stands in sysfs before it is done with the GPU: the second try is for that.
FIRST_PAUSE_SECONDS = 15.0
PAUSE_FACTOR = 4
MOST_TRIES = 5  # the last is 21 minutes after the first


class Known(Protocol):
    """What is known of GPUs by their PCI addresses, as the kernel spells these."""

    def lacks(self, address: str) -> bool:
        """Whether the connection is known not to have the GPU."""

    def leaves_out(self, address: str) -> bool:
        """Whether nobody wants the GPU."""


class _Tried(NamedTuple):
    """A GPU for which the driver was connected to anew."""

    taken: int
    """Which time of being taken by the driver it was for."""
    tries: int
    next_at: float


class Arrivals:
    """Which GPUs the driver has that a connection to it lacks. For the thread that collects."""

    def __init__(self, gpus: Known, monotonic: Callable[[], float]) -> None:
        self._gpus = gpus
        self._monotonic = monotonic
        self._held: Mapping[str, int] = {}
        self._generation = 0
        self._presented: dict[str, int] = {}
        """What the driver had when the present connection was begun."""
        self._asked: dict[str, int] = {}
        self._asked_at = 0.0
        self._tried: dict[str, _Tried] = {}

    def look(self, held: Mapping[str, int] | None, link: Link | None) -> bool:
        """Take note of what the driver has (:attr:`PciBus.held`); whether it took any GPU since the last look."""
        before, self._held = self._held, self._held if held is None else held
        if link is not None and link.generation != self._generation:
            self._connected(link)
        return any(before.get(address) != taken for address, taken in self._held.items())

    def since_connected(self) -> list[str]:
        """The PCI addresses of those that the driver took since; but for odd ones, the connection lacks them."""
        changed = [address for address, taken in self._held.items() if self._presented.get(address) != taken]
        return [address for address in changed if not self._gpus.leaves_out(address)]

    def missing(self, came: Iterable[str], answered: Collection[str]) -> list[str]:
        """The PCI addresses of those for which to give up the connection now and make another; mostly none.

        Args:
            came: what :meth:`since_connected` gave.
            answered: those of them that the present connection has read all the same.
        """
        self._presented.update((address, self._held[address]) for address in answered)
        found = [*(address for address in came if address not in answered), *self._due()]
        self._asked, self._asked_at = {address: self._held[address] for address in found}, self._monotonic()
        return found

    @property
    def awaited(self) -> Collection[str]:
        """The PCI addresses of those for which a new connection was asked for the last time that one was."""
        return self._asked

    def _connected(self, link: Link) -> None:
        self._generation = link.generation
        self._presented = dict(self._held if link.held is None else link.held)
        held, asked = self._held, self._asked
        self._tried = {address: tried for address, tried in self._tried.items() if held.get(address) == tried.taken}
        for address, taken in asked.items():
            tries = self._tried[address].tries + 1 if address in self._tried else 1
            pause = FIRST_PAUSE_SECONDS * PAUSE_FACTOR ** (tries - 1)
            self._tried[address] = _Tried(taken, tries, self._asked_at + pause)
        if asked:
            log.info("connected to the driver anew, as it has taken a GPU: %s", ", ".join(asked))

    def _due(self) -> Iterable[str]:
        for address, tried in [*self._tried.items()]:
            if self._presented.get(address) != tried.taken:  # taken again: it came
                continue
            if not self._gpus.lacks(address):  # for good: what befalls it from now on is no arrival
                del self._tried[address]
            elif tried.tries == MOST_TRIES:
                log.warning("the driver has the GPU %s, but NVML doesn't present it: given up", address)
                del self._tried[address]
            elif self._monotonic() >= tried.next_at:
                yield address
