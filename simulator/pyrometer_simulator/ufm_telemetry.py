"""UFM Telemetry's HTTP endpoint: the CSV tables of ports and of switches' sensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from pyrometer_simulator.http_server import HttpServer, Request, Response

PATH = "/csv/xcset/low_freq_debug"
SENSORS = "timestamp,node_guid,sensor_index,mtmp_sensor_name,temperature,max_temperature"


@dataclass
class UfmTelemetry:
    """Ports and sensors with their temperatures; what each table is called differs between releases.

    Attributes:
        wall: the clock of the samples.
        columns: the names of the ports' table after the time stamp, as a release writes them.
        age: seconds since UFM looked at the fabric.
    """

    wall: Callable[[], float]
    columns: str = "source_id,tag,Node_GUID,port_guid,Port_Number,node_description,port_label,Module_Temperature"
    age: float = 0.0
    ports: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)
    sensors: dict[tuple[str, str], str] = field(default_factory=dict)
    response: Response | None = None

    def port(self, guid: str, number: str, celsius: str, **columns: str) -> None:
        """Set a port's module temperature, as text (``54C``, ``N/A``)."""
        named = {"node_guid": guid, "port_guid": guid, "source_id": guid, "port_number": number, "port_num": number}
        self.ports[guid, number] = {**named, "port": number, "module_temperature": celsius, **columns}

    def sensor(self, guid: str, name: str, celsius: str) -> None:
        """Set the temperature of a switch's own sensor."""
        self.sensors[guid, name] = celsius

    def text(self) -> str:
        """Return both tables."""
        stamp = str(int((self.wall() - self.age) * 1e6))
        names = self.columns.lower().split(",")
        lines = [f"timestamp,{self.columns}"] if self.ports else []
        lines += [",".join([stamp, *(port.get(name, "") for name in names)]) for port in self.ports.values()]
        if self.sensors:
            lines += ["", SENSORS]
        for index, ((guid, name), celsius) in enumerate(self.sensors.items()):
            lines.append(f"{stamp},{guid},{index},{name},{celsius},{celsius}")
        return "\n".join(lines) + "\n"

    def respond(self, request: Request) -> Response:
        """Answer a request."""
        if self.response is not None:
            return self.response
        return Response(self.text().encode()) if request.path == PATH else Response(b"Endpoint not found", 404)


@contextmanager
def serving(telemetry: UfmTelemetry) -> Iterator[str]:
    """Serve on a free port of the loopback, and yield the address of the CSV."""
    with HttpServer(telemetry.respond) as server:
        yield f"{server.url}{PATH}"
