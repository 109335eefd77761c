"""A table panel's rows: the answers of its queries, and the transformations that its board applies to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from pyrometer_kit.prometheus import Series
from pyrometer_simulator.demo.drawn.query import newest

Row: TypeAlias = dict[str, "float | str"]


def rows_of(answers: Mapping[str, Sequence[Series]], transformations: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Return the rows that Grafana would show, by column name in its order.

    ``answers`` has the series of each query by its reference. Transformations that no board uses are left out: one
    of another kind changes nothing.
    """
    rows = _merged(_plain(answers)) if len(answers) > 1 else list(_plain(answers))
    for transformation in transformations:
        change = _CHANGES.get(transformation["id"])
        if change is not None:
            rows = change(rows, transformation.get("options", {}))
    return [row for row in rows if row]


def _plain(answers: Mapping[str, Sequence[Series]]) -> Iterable[Row]:
    for reference, answer in answers.items():
        name = f"Value #{reference}" if len(answers) > 1 else "Value"
        for series in answer:
            labels = {label: value for label, value in series.labels.items() if label != "__name__"}
            yield {**labels, name: newest(series)}


def _merged(rows: Iterable[Row]) -> list[Row]:
    """Join rows that agree in all that they share, and share something."""
    found: list[Row] = []
    for row in rows:
        partners = [each for each in found if each.keys() & row.keys() and _agree(each, row)]
        for each in partners:
            each.update(row)
        if not partners:
            found.append(dict(row))
    return found


def _agree(one: Row, other: Row) -> bool:
    return all(one[name] == other[name] for name in one.keys() & other.keys())


def _organize(rows: list[Row], options: Mapping[str, Any]) -> list[Row]:
    excluded = {_bare(name) for name, out in options.get("excludeByName", {}).items() if out}
    order = {_bare(name): place for name, place in options.get("indexByName", {}).items()}
    names = {_bare(name): new for name, new in options.get("renameByName", {}).items()}
    ordered = []
    for row in rows:
        kept = sorted((name for name in row if name not in excluded), key=lambda name: order.get(name, 999))
        ordered.append({names.get(name) or name: row[name] for name in kept})
    return ordered


def _filter(rows: list[Row], options: Mapping[str, Any]) -> list[Row]:
    names = {_bare(name) for name in options.get("include", {}).get("names", [])}
    return [{name: value for name, value in row.items() if name in names} for row in rows] if names else rows


def _matrix(rows: list[Row], options: Mapping[str, Any]) -> list[Row]:
    down, across, value = (options.get(name, "") for name in ("rowField", "columnField", "valueField"))
    columns = sorted({row[across] for row in rows if across in row}, key=_numbers_first)
    found: dict[str, Row] = {}
    for row in rows:
        if down in row and across in row and value in row:
            found.setdefault(str(row[down]), {})[str(row[across])] = row[value]
    return [
        {f"{down}\\{across}": name, **{str(column): cells[str(column)] for column in columns if str(column) in cells}}
        for name, cells in sorted(found.items())
    ]


def _sort(rows: list[Row], options: Mapping[str, Any]) -> list[Row]:
    for each in reversed(options.get("sort", [])):
        name = _bare(each["field"])
        rows = sorted(rows, key=lambda row: _numbers_first(row.get(name, "")), reverse=bool(each.get("desc")))
    return rows


def _worst(rows: list[Row], options: Mapping[str, Any]) -> list[Row]:
    """Add each row's largest number, the only calculation over a row that a board has."""
    if options.get("mode") != "reduceRow" or options["reduce"]["reducer"] != "max":
        return rows
    numbers = [[value for value in row.values() if isinstance(value, float)] for row in rows]
    return [row | ({options["alias"]: max(own)} if own else {}) for row, own in zip(rows, numbers, strict=True)]


def _numbers_first(value: float | str) -> tuple[int, float, str]:
    if not isinstance(value, str):
        return 0, value, ""
    return (0, float(value), "") if value.isdigit() else (1, 0.0, value)


def _bare(name: str) -> str:
    return name.removesuffix(" (lastNotNull)")


_CHANGES: dict[str, Callable[[list[Row], Mapping[str, Any]], list[Row]]] = {
    "organize": _organize,
    "filterFieldsByName": _filter,
    "calculateField": _worst,
    "groupingToMatrix": _matrix,
    "sortBy": _sort,
}
