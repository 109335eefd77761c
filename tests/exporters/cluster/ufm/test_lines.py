"""Lines of UFM's event log: heads, places, cables, times."""

from __future__ import annotations

import zoneinfo
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrometer_exporters.cluster.ufm.lines import MAX_EVENT, Event, begins, event, unix_time
from pyrometer_exporters.cluster.ufm.link_ends import LinkEnd, cable, ends, labelled, switch_port, unhealthy_reason

HEAD = "2026-01-20 07:46:24.442 [12345]"
TRUNK = (
    f"{HEAD} [329] WARNING [Hardware] Link [default / Switch: T3-E21-N-U47 / 1/17/1]: Link went down: "
    "(Switch:T3-E21-N-U47:1/17/1)9c0591030090e000:33 - (Switch:T4-E45-L-U51:1/4/2)fc6a1c0300244e00:8, "
    "cable S/N: MT2330FT09118"
)
HOST = (
    f"{HEAD} [329] WARNING [Hardware] Link [default / Switch: leaf-12 / 1/9/1]: Link went down: "
    "(Switch:leaf-12:1/9/1)9C0591030090E000:17 - (Computer:gpu-174 mlx5_5)0xb8cef6030012aa00:1, cable S/N: MT23"
)
SYSLOG = (
    "Oct 17 15:56:33 c931hsm04 eventlog[30300]: WARNING - 2016-10-17 15:56:33.245 [5744] [112] WARNING [Hardware] "
    "IBPort [default(34) / Switch: c931ibsw-leaf01 / NA / 16] [dev_id: 248a0703006d40f0]: Link-Downed counter delta "
    "threshold exceeded. Threshold is 0, calculated delta is 1. Peer info: Computer: c931f03p08 HCA-1 / 1."
)
SITE = f"{HEAD} [394] CRITICAL Site [hall-2] [Hardware] Switch [default / Switch: leaf-12]: Switch critical failure"
UNHEALTHY = (
    f"{HEAD} [702] WARNING [Hardware] IBPort [default / Switch: leaf-12 / 1/17/1] [dev_id: 9c05]: Peer Port "
    "spine-3.fabric:1/19/2 is considered by SM as unhealthy due to FLAPPING."
)


def parsed(line: str) -> Event:
    found = event(line)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("line", "number", "kind", "expected"),
    [
        (TRUNK, 329, "Link", [LinkEnd("T3-E21-N-U47", "", "", "17/1", "9c0591030090e000"),
                              LinkEnd("T4-E45-L-U51", "", "", "4/2", "fc6a1c0300244e00")]),
        (HOST, 329, "Link", [LinkEnd("leaf-12", "", "", "9/1", "9c0591030090e000"),
                             LinkEnd("", "gpu-174", "mlx5_5", "1", "b8cef6030012aa00")]),
        (SYSLOG, 112, "IBPort", [LinkEnd("c931ibsw-leaf01", port="16"), LinkEnd("", "c931f03p08", "mlx5_0", "1")]),
        (SITE, 394, "Switch", [LinkEnd("leaf-12")]),
        (UNHEALTHY, 702, "IBPort", [LinkEnd("leaf-12", port="17/1"), LinkEnd("spine-3.fabric", port="19/2")]),
        (f"{HEAD} [331] WARNING [Hardware] Computer [default / Computer: gpu-174]: Node is down",
         331, "Computer", [LinkEnd(node="gpu-174")]),
        (f"{HEAD} [603] WARNING [Maintenance] Grid [Grid]: Non-critical events are suppressed", 603, "Grid", []),
    ],
)  # fmt: skip
def test_an_event_says_what_happened_where(line: str, number: int, kind: str, expected: list[LinkEnd]) -> None:
    found = parsed(line)
    assert (found.number, found.kind) == (number, kind)
    assert ends(found) == expected


def test_the_cable_and_the_reason_are_read() -> None:
    assert cable(parsed(TRUNK)) == "MT2330FT09118"
    assert cable(parsed(SYSLOG)) == ""
    assert cable(parsed(TRUNK.replace("MT2330FT09118", "N/A"))) == ""
    moved = f"{HEAD} [1503] WARNING [Hardware] Link [a]: Duplicate cable detected, serial number: MT-99_X"
    assert cable(parsed(moved)) == "MT-99_X"
    assert unhealthy_reason(parsed(UNHEALTHY).message) == "flapping"
    assert unhealthy_reason("fine") == ""


def test_hosts_are_named_in_many_ways() -> None:
    def host(name: str) -> LinkEnd:
        message = f"Link went down: (Switch:s:1/1/1)ab12cd:1 - (Computer:{name})cd34ef:2"
        return ends(parsed(f"{HEAD} [329] WARNING [Hardware] Link [x]: {message}"))[1]

    assert host("gpu-174 mlx5_5") == LinkEnd("", "gpu-174", "mlx5_5", "2", "cd34ef")
    assert host("gpu-174 HCA-6") == LinkEnd("", "gpu-174", "mlx5_5", "2", "cd34ef")
    assert host("gpu-174:mlx5_5/1") == LinkEnd("", "gpu-174", "mlx5_5", "1", "cd34ef")
    assert host("gpu-174.example mlx5_bond_0") == LinkEnd("", "gpu-174.example", "mlx5_bond_0", "2", "cd34ef")
    # A node without a name of its own has its card's: it names no device, but its GUID identifies it.
    assert host("MT1111 ConnectX7   Mellanox Technologies").device == ""


def test_a_switchs_collective_engine_is_no_end() -> None:
    line = HOST.replace("(Computer:gpu-174 mlx5_5)", "(Computer:Mellanox Technologies Aggregation Node)")
    assert [end.switch for end in ends(parsed(line))] == ["leaf-12"]


@pytest.mark.parametrize(
    "line",
    [
        "", " ", "x", "2026", "  check 3: passed", "Traceback (most recent call last):", HEAD, f"{HEAD} [329]",
        f"{HEAD} [329] WARNING [Hardware]", f"{HEAD} [329] WARNING Link [x] Link went down",
        f"{HEAD} [abc] WARNING [Hardware] Link [x]: y", f"{HEAD} [1234567] WARNING [Hardware] Link [x]: y",
        TRUNK.replace("2026-01-20", "2026-02-31"), TRUNK.replace("07:46", "25:61"), TRUNK[1:],
        "\x00" * 100, "é" * 50, "[" * 5000, "(" * 5000,
    ],
)  # fmt: skip
def test_what_is_no_event_is_none(line: str) -> None:
    assert event(line) is None


@given(st.text(max_size=200))
def test_no_text_breaks_the_reading(text: str) -> None:
    for line in (text, f"{HEAD} [329] WARNING [Hardware] Link [{text}]: {text}", TRUNK.replace("Switch:", text)):
        begins(line)
        found = event(line)
        if found is not None:
            assert all(isinstance(part, str) for end in ends(found) for part in (end.switch, end.node, end.port))
            assert len(ends(found)) <= 2
            assert all(bool(end.switch) != bool(end.node) for end in ends(found))
            cable(found)


names = st.text(st.sampled_from("abcdefghijklmnopqrstuvwxyzTE0123456789-_."), min_size=1, max_size=20)


@given(names, st.integers(1, 64), names, st.integers(0, 11), st.text("ABCMT0123456789", min_size=4, max_size=16))
def test_every_hosts_link_is_read_back(switch: str, port: int, host: str, device: int, serial: str) -> None:
    line = (
        f"{HEAD} [329] WARNING [Hardware] Link [default / Switch: {switch} / 1/{labelled(str(port))}]: Link went down: "
        f"(Switch:{switch}:1/{labelled(str(port))})9c0591030090e000:{port} - "
        f"(Computer:{host} mlx5_{device})b8cef6030012aa00:1, cable S/N: {serial}"
    )
    found = parsed(line)
    if not switch.strip(".") or not host.strip("."):
        return
    one, other = ends(found)
    assert (one.switch, one.port) == (switch, labelled(str(port)))
    assert (other.node, other.device, other.port) == (host, f"mlx5_{device}", "1")
    assert cable(found) == serial


def test_what_begins_an_event_and_what_goes_on_with_one() -> None:
    assert all(begins(line) for line in (TRUNK, SYSLOG, f"{HEAD} garbage", "Oct 17 15:56:33 host eventlog[1]: garbage"))
    assert not any(begins(line) for line in ("", "  check 1: passed", "Traceback", "2026 was a good year"))


def test_further_lines_join_the_message_up_to_a_limit() -> None:
    found = parsed(TRUNK)
    for _ in range(2000):
        found = found.and_more("   and so on    ")
    assert found.message.startswith("Link went down")
    assert len(found.message) < MAX_EVENT + 100


def test_ports_by_label_and_by_number() -> None:
    assert [switch_port(p) for p in ("1/17/1", "17/1", " NA / 16", "16", "2/3/1")] == [
        "17/1",
        "17/1",
        "16",
        "16",
        "2/3/1",
    ]
    assert [labelled(n) for n in ("1", "2", "33", "64")] == ["1/1", "1/2", "17/1", "32/2"]


def test_the_hour_that_happens_twice_happens_twice() -> None:
    zone = zoneinfo.ZoneInfo("America/Los_Angeles")
    start = datetime(2026, 11, 1, 7, 30, tzinfo=timezone.utc)
    latest = 0.0
    for minutes in range(0, 240, 7):
        moment = start + timedelta(minutes=minutes)
        stamp = moment.astimezone(zone).replace(tzinfo=None, fold=0)
        latest = unix_time(stamp, zone, latest)
        assert latest == moment.timestamp(), stamp


def test_events_that_are_logged_out_of_order_keep_their_times() -> None:
    zone = zoneinfo.ZoneInfo("America/Los_Angeles")
    stamp = datetime(2026, 6, 1, 12, 0)  # noqa: DTZ001  the log's own
    now = unix_time(stamp, zone, 0.0)
    assert unix_time(stamp - timedelta(seconds=5), zone, now) == now - 5
    assert unix_time(stamp - timedelta(days=9), zone, now) == now - 9 * 86400
    assert unix_time(datetime(1, 1, 1), None, 0.0) <= 0  # noqa: DTZ001
