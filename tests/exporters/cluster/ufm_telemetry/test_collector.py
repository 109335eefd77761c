"""Temperatures by the names that people know: a host's port by node and device, a switch's by name and label."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from pyrometer_exporters.cluster.main import CLUSTER_EXPORTER
from pyrometer_exporters.cluster.ufm_telemetry import temperatures
from pyrometer_exporters.cluster.ufm_telemetry.collector import COLLECTOR, UfmTelemetryCollector
from pyrometer_exporters.framework.collector import Context
from pyrometer_exporters.framework.exposition import Renderer
from pyrometer_kit.flags import Flags
from pyrometer_kit.prometheus import Series
from pyrometer_simulator.http_server import Response
from pyrometer_simulator.ufm_telemetry import UfmTelemetry, serving

MODULE, SENSOR = "pyrometer_ufm_module_temperature_celsius", "pyrometer_ufm_switch_temperature_celsius"
NEWEST = "pyrometer_ufm_telemetry_last_sample_timestamp_seconds"
LEAF, HOST = "0x9c0591030090e000", "0xb8cef6030012aa00"
Start = Callable[..., Callable[[], Any]]


@pytest.fixture
def telemetry(clock: Any) -> UfmTelemetry:
    found = UfmTelemetry(clock.wall)
    found.port(LEAF, "33", "54C", node_description="MF0;leaf-12:MQM9700/U1", port_label="17/1")
    found.port(LEAF, "34", "N/A", node_description="MF0;leaf-12:MQM9700/U1", port_label="17/2")
    found.port(HOST, "1", "61C", node_description="gpu-174 mlx5_5")
    found.sensor(LEAF, "asic", "66")
    return found


@pytest.fixture
def start(clock: Any, prometheus: Any, scraped: Any) -> Iterator[Start]:
    """Yield a function that starts the collector with flags, and returns its scrape."""
    made: list[UfmTelemetryCollector] = []
    nic = Series({"node": "gpu-174", "device": "mlx5_5", "port": "1", "guid": "b8ce:f603:0012:aa00"}, ((1.0, 1.0),))
    prometheus.answers = {"pyrometer_nic_info": [nic]}

    def begin(*urls: str) -> Callable[[], Any]:
        parser = Flags("test", "")
        CLUSTER_EXPORTER.add_flags(parser)
        COLLECTOR.add_flags(parser)
        flags = parser.parse_args([f"--collector.ufm-telemetry.url={url}" for url in urls])
        made.append(UfmTelemetryCollector(Context(flags, clock, Path(), Path(), Path(), None), prometheus))
        return lambda: scraped(list(made[-1].collect(time.monotonic() + 5)))

    yield begin
    for one in made:
        one.close()


def test_ports_and_sensors_have_the_names_of_hosts_and_switches(
    telemetry: UfmTelemetry, start: Start, clock: Any, golden: Callable[[str, str], None]
) -> None:
    with serving(telemetry) as url:
        found = start(url)()
    assert found.downs == {}
    assert found.values == {
        (MODULE, "", "", "", "leaf-12", "17/1"): 54,
        (MODULE, "gpu-174", "mlx5_5", "1", "", ""): 61,
        (SENSOR, "leaf-12", "asic"): 66,
        (NEWEST, url.removeprefix("http://")): clock.wall(),
    }
    assert {sample.family for sample in found.samples} == set(COLLECTOR.families)
    golden(Renderer().text(found.samples).decode().replace(url.removeprefix("http://"), "UFM"), "golden/metrics.txt")


@pytest.mark.parametrize(
    "columns",
    [
        "source_id,node_guid,port_guid,port_num,node_description,port_label,Module_Temperature",
        "Node_GUID,port_guid,Port_Number,node_description,port_label,hist_0,Module_Temperature,Symbol_Errors",
    ],
)
def test_the_columns_of_every_release_are_read(telemetry: UfmTelemetry, start: Start, columns: str) -> None:
    telemetry.columns = columns
    with serving(telemetry) as url:
        assert start(url)().values[MODULE, "", "", "", "leaf-12", "17/1"] == 54


def test_a_switch_without_a_name_has_its_guid_and_a_port_without_a_label_its_number(
    telemetry: UfmTelemetry, start: Start
) -> None:
    telemetry.ports.clear()
    telemetry.port(LEAF, "33", "54C", node_description="Quantum Mellanox Technologies")
    with serving(telemetry) as url:
        found = start(url)().values
    assert found[MODULE, "", "", "", "9c0591030090e000", "33"] == 54
    assert found[SENSOR, "9c0591030090e000", "asic"] == 66


def test_bonded_ports_of_one_guid_are_nobodys(telemetry: UfmTelemetry, start: Start, prometheus: Any) -> None:
    labels = {"node": "gpu-174", "device": "mlx5_6", "port": "1", "guid": "b8ce:f603:0012:aa00"}
    prometheus.answers["pyrometer_nic_info"].append(Series(labels, ((1.0, 1.0),)))
    with serving(telemetry) as url:
        assert (MODULE, "gpu-174", "mlx5_5", "1", "", "") not in start(url)().values


def test_without_an_address_nothing_is_asked_and_nothing_is_missing(start: Start) -> None:
    found = start()()
    assert (found.values, found.downs) == ({}, {})


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (Response(b"", 404), "http_404"),
        (Response(b"<html>sign in</html>"), "no_table"),
        (Response(b"\xff\0,,,\n" * 50), "no_table"),
    ],
)
def test_an_answer_without_a_table_is_one_reason(
    telemetry: UfmTelemetry, start: Start, response: Response, reason: str
) -> None:
    telemetry.response = response
    with serving(telemetry) as url:
        found = start(url)()
    assert list(found.downs.values()) == [reason]
    assert found.values == {}


def test_one_address_that_is_away_does_not_hide_the_other(telemetry: UfmTelemetry, start: Start) -> None:
    with serving(telemetry) as gone:
        pass
    with serving(telemetry) as url:
        found = start(gone, url)()
    assert list(found.downs.values()) == ["no_answer"]
    assert found.values[SENSOR, "leaf-12", "asic"] == 66


def test_rows_that_ufm_does_not_renew_are_absent_and_said(telemetry: UfmTelemetry, start: Start) -> None:
    telemetry.age = temperatures.STALE_SECONDS + 1
    with serving(telemetry) as url:
        found = start(url)()
    assert list(found.downs.values()) == ["stale"]
    assert "901 s old" in next(iter(found.details.values()))
    assert {name for name, *_labels in found.values} == {NEWEST}


def test_ports_beyond_the_limit_are_left_out_and_said(
    telemetry: UfmTelemetry, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(temperatures, "MAX_PORTS", 1)
    with serving(telemetry) as url:
        found = start(url)()
    assert list(found.downs.values()) == ["too_many"]
    assert len([name for name, *_labels in found.values if name == MODULE]) == 1


@pytest.mark.parametrize("given", [["ufm:9002"], ["http://u:p@ufm:9002/csv"]])
def test_a_wrong_address_is_one_line(given: Sequence[str], start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        start(*given)
    assert len(capsys.readouterr().err.strip().splitlines()[-1]) < 200
