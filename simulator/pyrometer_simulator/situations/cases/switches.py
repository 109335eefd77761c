"""Situations of switches, as UFM Telemetry reports them."""

from __future__ import annotations

from pyrometer_exporters.cluster.ufm_telemetry.collector import temperature_samples
from pyrometer_exporters.cluster.ufm_telemetry.temperatures import rows, temperatures
from pyrometer_exporters.framework.exposition import Renderer
from pyrometer_simulator.situations.host import TRAINING
from pyrometer_simulator.situations.model import MINUTE, Action, Situation, at, within
from pyrometer_simulator.situations.site import Site
from pyrometer_simulator.ufm_telemetry import UfmTelemetry

LEAF, NAME = "0x9c0591030090e000", "MF0;leaf-12:MQM9700/U1"


class Fabric:
    """Serve a switch's temperatures as UFM looks at them, every five minutes; given parts get hot from the tenth on."""

    def __init__(self, site: Site, **hot: float) -> None:
        self._site, self._hot = site, hot
        self._telemetry = UfmTelemetry(lambda: site.now)
        self._text = b""
        self._look()
        site.every(5 * MINUTE, self._look, 20)
        site.serve("cluster", lambda: self._text)

    def _look(self) -> None:
        late = self._site.now >= 10 * MINUTE - 1
        module = self._hot.get("module", 52.0) if late else 52.0
        chip = self._hot.get("chip", 61.0) if late else 61.0
        self._telemetry.port(LEAF, "33", f"{module:.0f}C", node_description=NAME, port_label="17/1")
        self._telemetry.sensor(LEAF, "asic", f"{chip:.0f}")
        found = temperatures(rows(self._telemetry.text().encode()), {}, self._site.now)
        self._text = Renderer().text(list(temperature_samples([found])))


def fabric(**hot: float) -> Action:
    """Return a step that adds the switch, of which these parts are so hot from the tenth minute on."""
    return lambda site: Fabric(site, **hot)


SITUATIONS = [
    Situation(
        "a switch's chip gets too hot: a fan has failed",
        steps=(at(0, fabric(chip=93.0)),),
        lasts=30 * MINUTE,
        hardware=TRAINING,
        fires={"SwitchHot": within(11.5 * MINUTE, not_before=9 * MINUTE, series=1, named=("leaf-12",))},
        fault_at=10 * MINUTE,
    ),
    Situation(
        "a module in a switch's port gets too hot",
        steps=(at(0, fabric(module=76.0)),),
        lasts=30 * MINUTE,
        hardware=TRAINING,
        fires={"FabricModuleHot": within(11.5 * MINUTE, not_before=9 * MINUTE, series=1, named=("leaf-12", "17/1"))},
        fault_at=10 * MINUTE,
    ),
    Situation(
        "a warm afternoon: a switch's chip at 82 degrees, its module at 68",
        steps=(at(0, fabric(chip=82.0, module=68.0)),),
        lasts=30 * MINUTE,
        hardware=TRAINING,
        fault_at=10 * MINUTE,
    ),
]
