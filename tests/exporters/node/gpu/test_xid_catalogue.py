"""Which Xids wake someone, and a site's own opinion of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyrometer_exporters.node.gpu.xid.catalogue import CLASSES, TABLE, Classes, load_overrides, meaning
from pyrometer_kit.errors import UsageError


@pytest.mark.parametrize("code", [13, 31, 43, 69, 137])
def test_a_programs_own_fault_is_of_class_app(code: int) -> None:
    assert Classes().of(code) == "app"


@pytest.mark.parametrize("code", [46, 48, 62, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 143, 155, 158, 167, 173])
def test_what_takes_a_gpu_out_of_service_is_critical(code: int) -> None:
    assert Classes().of(code) == "critical"
    assert code in Classes().critical_codes()


@pytest.mark.parametrize("code", [0, 7, 174, 99999])
def test_an_unknown_number_is_kept_as_a_warning(code: int) -> None:
    assert Classes().of(code) == "warning"
    assert meaning(code) == "Unknown Error"


@pytest.mark.parametrize(
    ("code", "message", "expected"),
    [
        (154, "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)", "critical"),
        (154, "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", "critical"),
        (154, "GPU recovery action changed from 0x2 (Node Reboot Required) to 0x0 (None)", "info"),
        (154, "", "warning"),
        (149, "NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000)", "critical"),
        (149, "NETIR_LINK_EVT Nonfatal XC0 i0 Link 08 (0x004505c6 0x00000000)", "warning"),
        (145, "RLW_CTRL Non-Fatal XC1 i0 Link 08", "warning"),
        (145, "", "warning"),
        (79, "Fatal words change nothing where the number says it", "critical"),
        (31, "Fatal", "app"),
    ],
)
def test_where_the_number_says_nothing_the_message_decides(code: int, message: str, expected: str) -> None:
    assert Classes().of(code, message) == expected


def test_the_table_is_in_order_without_doubles_and_says_something_of_each() -> None:
    codes = [xid.code for xid in TABLE]
    assert codes == sorted(set(codes))
    assert all(xid.xid_class in CLASSES and xid.meaning for xid in TABLE)


def test_a_site_has_its_own_classes(tmp_path: Path) -> None:
    path = tmp_path / "classes.yaml"
    path.write_text("# ours\n---\n31: warning\n79: info  # we know\n  1234: critical\n\n154: app\n")
    classes = Classes(load_overrides(path))
    assert [classes.of(code) for code in (31, 79, 1234, 48)] == ["warning", "info", "critical", "critical"]
    assert classes.of(154, "changed from 0x0 (None) to 0x2 (Node Reboot Required)") == "app"
    assert 1234 in classes.critical_codes()
    assert not {79, 154} & set(classes.critical_codes())


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("79: critical\n48: grave\n", ":2: grave is not a class; known are app, info, warning, critical"),
        ("79: critical\n79: info\n", ":2: 79 was given before"),
        ("79 critical\n", ":1: '79 critical' is not a number and a class, such as 79: critical"),
        ("xids:\n", ":1: 'xids:' is not a number and a class"),
        ("-1: info\n", ":1: '-1: info' is not a number and a class"),
        ("1234567: info\n", ":1: '1234567: info' is not a number"),
        ("[79]\n", ":1: '[79]' is not"),
    ],
)
def test_a_wrong_file_is_refused_by_line(tmp_path: Path, text: str, error: str) -> None:
    path = tmp_path / "classes.yaml"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        load_overrides(path)
    assert str(caught.value).startswith(f"{path}{error}")


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can't be read: No such file"):
        load_overrides(tmp_path / "none")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="can't be read"):
        load_overrides(tmp_path / "binary")
