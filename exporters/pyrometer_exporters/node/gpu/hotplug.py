"""Decide when to reconnect to the driver for a hotplugged GPU: back from a virtual machine, the bus, another driver.

NVML lists GPUs in nvmlInit and never again in that process, so an earlier connection lacks a GPU that the driver took
later. (DCGM, too, shuts NVML down and initialises it to attach GPUs.) Reconnecting costs all GPUs a moment without
samples. So it is done once for each time that the driver takes a GPU, and a few times more, ever less often, while NVML
still doesn't present it: a container may see a bus with GPUs that it isn't given, and a driver may hold a GPU that it
was told to leave out. A sick GPU is not hotplugged: its driver never let it go.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple, Protocol

from pyrometer_exporters.node.gpu.driver import Link

log = logging.getLogger(__name__)

# A driver's name appears in sysfs before it has set up the GPU: the second try is for that.
FIRST_PAUSE_SECONDS = 15.0
PAUSE_FACTOR = 4
MOST_TRIES = 5  # the last is 21 minutes after the first


class KnownGpus(Protocol):
    """The GPUs that are known, by their PCI addresses as the kernel spells these."""

    def lacks(self, address: str) -> bool:
        """Return whether the connection is known not to have the GPU."""
        ...

    def leaves_out(self, address: str) -> bool:
        """Return whether the GPU is not to be read."""
        ...


class _Attempt(NamedTuple):
    """A reconnection for a GPU."""

    taken: int
    """How often the driver had taken the GPU by then."""
    tries: int
    next_at: float


class Hotplug:
    """Finds the GPUs that the driver has and a connection to it lacks. For the thread that collects."""

    def __init__(self, gpus: KnownGpus, monotonic: Callable[[], float]) -> None:
        self._gpus = gpus
        self._monotonic = monotonic
        self._held: Mapping[str, int] = {}
        self._generation = 0
        self._presented: dict[str, int] = {}
        """The GPUs that the driver had when the present connection was made."""
        self._asked: dict[str, int] = {}
        self._asked_at = 0.0
        self._attempts: dict[str, _Attempt] = {}

    def look(self, held: Mapping[str, int] | None, link: Link | None) -> bool:
        """Note the GPUs that the driver has (:attr:`PciBus.held`); return whether it took any since the last look."""
        before, self._held = self._held, self._held if held is None else held
        if link is not None and link.generation != self._generation:
            self._connected(link)
        return any(before.get(address) != taken for address, taken in self._held.items())

    def since_connected(self) -> list[str]:
        """Return the PCI addresses of the GPUs that the driver took since; the connection lacks nearly all of them."""
        changed = [address for address, taken in self._held.items() if self._presented.get(address) != taken]
        return [address for address in changed if not self._gpus.leaves_out(address)]

    def missing(self, came: Iterable[str], answered: Collection[str]) -> list[str]:
        """Return the PCI addresses of the GPUs for which to reconnect now; mostly none.

        Args:
            came: the result of :meth:`since_connected`.
            answered: those of them that the present connection can read.
        """
        self._presented.update((address, self._held[address]) for address in answered)
        addresses = [*(address for address in came if address not in answered), *self._due()]
        self._asked, self._asked_at = {address: self._held[address] for address in addresses}, self._monotonic()
        return addresses

    @property
    def awaited(self) -> Collection[str]:
        """The PCI addresses of the GPUs for which a reconnection was last asked for."""
        return self._asked

    def _connected(self, link: Link) -> None:
        self._generation = link.generation
        self._presented = dict(self._held if link.held is None else link.held)
        held, asked = self._held, self._asked
        self._attempts = {
            address: tried for address, tried in self._attempts.items() if held.get(address) == tried.taken
        }
        for address, taken in asked.items():
            tries = self._attempts[address].tries + 1 if address in self._attempts else 1
            pause = FIRST_PAUSE_SECONDS * PAUSE_FACTOR ** (tries - 1)
            self._attempts[address] = _Attempt(taken, tries, self._asked_at + pause)
        if asked:
            log.info("reconnected to the driver for hotplugged GPUs: %s", ", ".join(asked))

    def _due(self) -> Iterable[str]:
        for address, tried in [*self._attempts.items()]:
            if self._presented.get(address) != tried.taken:  # taken again: it came
                continue
            if not self._gpus.lacks(address):  # it was attached: whatever happens to it from now on is no hotplug
                del self._attempts[address]
            elif tried.tries == MOST_TRIES:
                log.warning("driver lists GPU %s but NVML does not; giving up", address)
                del self._attempts[address]
            elif self._monotonic() >= tried.next_at:
                yield address
