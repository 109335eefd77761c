"""The tables of an answer: by name, in any order and case, several in turn, torn and hostile ones included."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrometer_exporters.cluster.ufm.fabric import HostPort
from pyrometer_exporters.cluster.ufm_telemetry import temperatures as module
from pyrometer_exporters.cluster.ufm_telemetry.temperatures import celsius_of, rows, switch_name, temperatures

# The columns' order and names of two releases: UFM's own port table, and the cables' of UFM Telemetry 1.22.
PRIMARY = b"timestamp,source_id,tag,Node_GUID,port_guid,Port_Number,Module_Temperature\n"
CABLES = b"timestamp,node_guid,port_guid,sys_image_guid,Port,aport,Lid,SN,Temperature,temperature_high_th\n"


def test_a_row_is_found_by_its_columns_names() -> None:
    (row,) = rows(PRIMARY + b"1768895184442000,0x1,,0x9c0591030090e000,0x9c0591030090e000,33,54C\n")
    assert (row["node_guid"], row["port_number"], row["module_temperature"]) == ("0x9c0591030090e000", "33", "54C")


def test_several_tables_follow_each_other() -> None:
    body = PRIMARY + b"1,0x1,,0x1,0x1,1,54C\n\n" + CABLES + b"1,0x2,0x2,0x2,7,1,5,MT1,61,75\n"
    first, second = rows(body)
    assert ("sn" in first, second["sn"], second["temperature"]) == (False, "MT1", "61")


def test_what_is_torn_or_no_table_is_left_out() -> None:
    assert list(rows(PRIMARY + b"1,0x1,,0x1,0x1,1,54C\n1,0x1,,0x1,0x")) == list(rows(PRIMARY + b"1,0x1,,0x1,0x1,1,54C"))
    assert list(rows(b"<html>sign in</html>\n")) == []
    assert list(rows(b"1,2,3\n")) == []


def test_a_field_or_a_line_that_is_endless_hides_no_other_row() -> None:
    good = b"1,0x1,,0x1,0x1,%d,54C\n"
    endless = b"1,0x1,,0x1," + b"x" * 200_000 + b",7,54C\n"
    body = PRIMARY + good % 1 + endless + b"1," * 700_000 + b"\n" + b"y" * 2_000_000 + b"\n" + good % 2
    assert [row["port_number"] for row in rows(body)] == ["1", "7", "2"]
    assert max(len(value) for row in rows(body) for value in row.values()) <= 256


def test_rows_of_the_future_are_not_of_now_and_not_the_newest() -> None:
    future = PRIMARY + b"99999999999999999999,0x1,,0x1,0x1,1,54C\n"
    alone = temperatures(rows(future), {}, 1000.0)
    assert (alone.modules, alone.stale, alone.newest) == ({}, 1, 0.0)
    beside = temperatures(rows(future + b"1000000000,0x1,,0x1,0x1,2,54C\n"), {}, 1000.0)
    assert (len(beside.modules), beside.newest) == (1, 1000.0)


def test_names_of_switches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PORTS", 2)
    header = b"node_guid,port,temperature,node_description\n"
    found = temperatures(rows(header + b"".join(b"%d,1,50,leaf-%d\n" % (n, n) for n in range(9))), {}, 0.0)
    assert [place.switch for place in found.modules] == ["leaf-0", "leaf-1"]
    assert found.left_out == 7


def test_a_temperature_is_none_where_there_is_no_sensor() -> None:
    absent = ("NA", "N/A", "", "0C", "0", "nan", "1e9", "-", "C")
    assert [celsius_of(text) for text in absent] == [None] * len(absent)
    assert (celsius_of("45C"), celsius_of("45.5"), celsius_of("-3C")) == (45.0, 45.5, -3.0)


def test_a_description_of_a_chip_names_no_switch() -> None:
    assert switch_name("Quantum Mellanox Technologies") == ""
    assert switch_name("MF0;leaf-12:MQM9700/U1") == "leaf-12"


def test_a_row_that_is_older_than_three_looks_is_not_known_any_more() -> None:
    body = PRIMARY + b"1000000000,0x1,,0x1,0x1,1,54C\n"
    assert temperatures(rows(body), {}, 1000.0 + 900).modules
    late = temperatures(rows(body), {}, 1000.0 + 901)
    assert (late.modules, late.stale, late.newest) == ({}, 1, 1000.0)


def test_two_asics_of_a_switch_with_one_name_are_told_by_the_hotter() -> None:
    body = b"node_guid,sensor_index,mtmp_sensor_name,temperature\n0x1,0,asic,61\n0x1,1,asic,66\n0x1,2,,50\n"
    assert temperatures(rows(body), {}, 0.0).sensors == {("0" * 15 + "1", "asic"): 66, ("0" * 15 + "1", "2"): 50}


@given(st.binary(max_size=400))
def test_no_answer_raises(data: bytes) -> None:
    for body in (data, PRIMARY + data, PRIMARY + b"1,0x1,,0x1,0x1,1,54C\n" + data):
        found = temperatures(rows(body), {"0" * 15 + "1": HostPort("n", "mlx5_0", "1", "0" * 15 + "1")}, 0.0)
        assert all(-1000 < celsius < 1000 for celsius in (*found.modules.values(), *found.sensors.values()))
