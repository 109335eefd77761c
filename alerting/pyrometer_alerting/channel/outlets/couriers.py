"""All outlets of the configuration, each with its own courier and thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from pyrometer_alerting.channel.incident_pictures import load_draw_incident
from pyrometer_alerting.channel.messages import Style
from pyrometer_alerting.channel.outlets.courier import Draw, OutletCourier
from pyrometer_alerting.channel.outlets.notice import Entry
from pyrometer_alerting.incidents.metrics import Metrics
from pyrometer_alerting.incidents.storage.store import Store, Transaction
from pyrometer_kit.clock import Clock
from pyrometer_kit.prometheus import Prometheus

Gauges = dict[str, dict[tuple[tuple[str, str], ...], float]]


class OutletCouriers:
    """Starts and stops couriers as the configuration names outlets."""

    def __init__(
        self, store: Store, *, style: Style, clock: Clock, metrics: Metrics, prometheus: Prometheus | None
    ) -> None:
        self._store, self._style, self._clock, self._metrics = store, style, clock, metrics
        self._draw: Draw = _draws(prometheus)
        self._couriers: dict[str, OutletCourier] = {}
        self._threads: dict[str, threading.Thread] = {}
        self._running = self._adopted = False

    def apply(self, entries: Sequence[Entry]) -> None:
        """Take over the configured outlets: new ones get all firing incidents, removed ones are forgotten.

        Raises:
            StoreError: SQLite or the disk failed.
        """
        wanted = {entry.name: entry for entry in entries}
        self._store.outlets = tuple(wanted)
        self._adopted = False
        if self._store.engine.leads():
            self._adopt()
        for name in self._couriers.keys() - wanted.keys():
            self._couriers.pop(name).stop()
            self._threads.pop(name, None)
        for name, entry in wanted.items():
            if name in self._couriers:
                if self._couriers[name].entry != entry:  # otherwise a reload would call an outlet that is down
                    self._couriers[name].renew(entry)
                continue
            self._couriers[name] = OutletCourier(
                self._store, entry, style=self._style, clock=self._clock, metrics=self._metrics, draw=self._draw
            )
            if self._running:
                self._start(name)

    def _adopt(self) -> None:
        with self._store.transaction() as tx:
            tx.adopt_outlets(self._store.outlets, self._clock.wall())
        self._adopted = True

    def start(self) -> None:
        """Deliver from now on.

        Raises:
            StoreError: the outlets could not be made known to the database.
        """
        if not self._adopted:
            self._adopt()
        self._running = True
        for name in self._couriers:
            self._start(name)

    def _start(self, name: str) -> None:
        run = self._couriers[name].run
        self._threads[name] = threading.Thread(target=run, daemon=True, name=f"outlet {name}")
        self._threads[name].start()

    def wake(self) -> None:
        """Check the outbox now."""
        for courier in list(self._couriers.values()):
            courier.wake()

    def stop(self) -> None:
        """Finish the calls in progress, keep the rest for the next start."""
        for courier in self._couriers.values():
            courier.stop()

    def join(self, seconds: float) -> None:
        """Wait for the threads to end, each for at most this long."""
        for thread in self._threads.values():
            thread.join(timeout=seconds)

    def gauges(self, tx: Transaction, now: float) -> Gauges:
        """Return the present gauges of all outlets."""
        gauges: Gauges = {}
        for name, courier in list(self._couriers.items()):
            depth, oldest, dead = tx.outbox_of(name).depth()
            label = (("outlet", name),)
            age = max(now - oldest, 0.0) if oldest is not None else 0.0
            values: Mapping[str, float] = {"depth": depth, "oldest_age_seconds": age, "dead": dead}
            for gauge, value in values.items():
                gauges.setdefault(f"pyrometer_alerting_outlet_{gauge}", {})[label] = value
            blocked = gauges.setdefault("pyrometer_alerting_outlet_blocked", {})
            blocked[(*label, ("reason", courier.blocked))] = float(bool(courier.blocked))
        return gauges

    def trouble(self, tx: Transaction, now: float) -> list[str]:
        """Return a line for the page for each outlet that does not accept its notices."""
        lines = []
        for name, courier in list(self._couriers.items()):
            depth, oldest, dead = tx.outbox_of(name).depth()
            if courier.blocked:
                lines.append(f"Outlet {name} refuses everything: {courier.blocked}. {depth} notices are queued.")
            elif oldest is not None and now - oldest > 30:
                lines.append(f"{depth} notices are waiting for outlet {name}, the oldest for {now - oldest:.0f} s.")
            if dead:
                lines.append(f"{dead} notices were refused by outlet {name} for good: pyrometer-alerting replay.")
        return lines


def _draws(prometheus: Prometheus | None) -> Callable[..., bytes | None]:
    """Return the function that draws a run's chart; None without a Prometheus to query."""
    if prometheus is None:
        return lambda _incident, _now: None
    return lambda incident, now: load_draw_incident()(prometheus, incident, now)
