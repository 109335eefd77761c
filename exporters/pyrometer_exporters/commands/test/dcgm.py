"""Read ``dcgmi diag``, as JSON or as the table that people read, of DCGM 2 to 4."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pyrometer_exporters.commands.test.reading import (
    NotMeasuredError,
    Problem,
    Reading,
    gpu_in,
    joined,
    json_objects,
    losses,
    objects,
    short,
)

NAMES: Final = ("DCGM Diagnostic", "DCGM GPU Diagnostic")
RAN: Final = ("pass", "fail", "warn")
# dcgmlib/dcgm_errors.h, dcgmErrorCategory_enum: performance thresholds and violations, Xids, and all of hardware; the
# others are of software, libraries, configuration, and DCGM itself.
CATEGORIES_OF_LOSS: Final = frozenset({1, 2, 5, *range(9, 16)})
# The same, dcgmErrorSeverity_enum: DCGM_ERROR_CONFIG, "this error can be configured" (ECC off, a narrow PCIe slot).
SEVERITY_CONFIG: Final = 5
# DCGM_FR_EUD_TEST_FAILED has the category of the software that ran the test.
ERRORS_OF_LOSS: Final = frozenset({95})
# ECC that waits for a reboot, a model without such clocks, a fabric manager that is not ready.
ERRORS_OF_NO_LOSS: Final = frozenset({61, 75, 76, 123})
# Deployment tests are of software, except these (dcgmi/Diag.cpp).
HARDWARE_IN_DEPLOYMENT: Final = ("page retirement", "row remap", "inforom")
# Before DCGM 3.2, and in the table, a warning has no category. dcgm_errors.h of 2.1 to 4.6, the messages of the codes
# with those categories; whatever is not here is no loss.
LOSS: Final = re.compile(
    "|".join((
        r"ECC error", r"\bDBEs?\b", r"retired page", r"page retirement", r"corrupt InfoROM",
        r"uncorrectable memory error", r"row remapping", r"rows were remapped", r"row remap limit", r"SRAM Threshold",
        r"clock(?:s event| throttling) due to (?:thermal|power) violation", r"Clocks are being throttled",
        r"Clocks event for GPU", r"thermal violations totaling", r"maximum allowed temperature", r"power usage for GPU",
        r"PCIe replay", r"PCI link generation", r"minimum required bandwidth", r"maximum allowed latency",
        r"NvLink errors", r"NvLink (?:link|port)? ?\d+ is (?:currently )?down", r"NvLinks are up out of",
        r"(?:effective|symbol) BER", r"(?:fatal errors on|fatal) NvSwitch", r"Detected S?XID", r"fallen off the bus",
        r"Detected [\d.]+ \S+ for \w+", r"met or exceeded the threshold", r"did not reach desired",
        r"(?:faulty|NaN-value) memory elements", r"memory mismatch", r"miscompare", r"achieved a memory bandwidth",
        r"peer-to-peer test", r"contained error", r"Recovery action",
    )),
    re.IGNORECASE,
)  # fmt: skip


class _Verdict(NamedTuple):
    """One result: test, whether it is of software, entity (``GPU 3``; empty if of all), status, and warnings."""

    test: str
    deployment: bool
    entity: str
    status: str
    warnings: tuple[Mapping[str, Any], ...]


def read(text: str) -> Reading:
    """Return what failed, on which GPU.

    DCGM 2 and 3 have ``{"DCGM GPU Diagnostic": {"test_categories": [...]}}`` with ``gpu_id`` or ``gpu_ids``; DCGM 4 has
    ``"DCGM Diagnostic"`` with ``entity_group`` and ``entity_id``. Warnings are a text in 2, objects since 3.1. With an
    error of its own there is ``runtime_error`` alone.

    Raises:
        ValueError: It is nothing of the kind.
        NotMeasuredError: All of its tests, or all of those of hardware, were skipped.
    """
    bodies = [root[name] for root in json_objects(text) for name in NAMES if isinstance(root.get(name), dict)]
    error = next((short(str(body["runtime_error"])) for body in bodies if "runtime_error" in body), "")
    verdicts = [verdict for body in bodies for verdict in _of_json(body)] or list(_of_table(text))
    if error and not verdicts:
        return Reading(tuple(losses(error)), unable=error)
    if not verdicts:
        raise ValueError("it names no test")
    cut = not bodies and not _is_closed(text)
    problems: list[Problem] = []
    unable: list[Problem] = []
    for verdict in verdicts:
        if verdict.status == "fail":
            explained = bool(verdict.warnings) or not cut
            (problems if explained and _is_loss(verdict) else unable).append(Problem(_words(verdict), verdict.entity))
    ran = [verdict for verdict in verdicts if verdict.status in RAN]
    hardware = [verdict for verdict in verdicts if not verdict.deployment]
    measured = [verdict for verdict in hardware or verdicts if verdict.status in RAN]
    if not problems and not unable and not measured:
        skipped = joined(dict.fromkeys(verdict.test for verdict in hardware or verdicts))
        raise NotMeasuredError(f"{'its tests of hardware' if ran else 'all of its tests'} were skipped: {skipped}")
    if cut and not problems and not unable:
        raise NotMeasuredError("its table is cut off")
    gpus = {verdict.entity for verdict in measured if verdict.entity.startswith("GPU ")}
    told = "; ".join(dict.fromkeys([*(problem.words for problem in unable), *filter(None, [error])]))
    return Reading(tuple(problems), gpus=len(gpus) or None, unable=short(told), software=not hardware)


def _of_json(body: Mapping[str, Any]) -> Iterator[_Verdict]:
    for category in objects(body.get("test_categories")):
        deployment = str(category.get("category", "")).lower() == "deployment"
        for test in objects(category.get("tests")):
            results = objects(test.get("results"))
            failed = any(str(result.get("status", "")).lower() == "fail" for result in results)
            # Since 4: the whole test's, with the warnings of no GPU.
            for result in results if failed else [*results, *objects([test.get("test_summary")])]:
                status = str(result.get("status", "")).lower()
                warnings = tuple(_warnings(result.get("warnings")))
                for entity in _entities(result, warnings):
                    yield _Verdict(str(test.get("name", "?")), deployment, entity, status, warnings)


def _entities(result: Mapping[str, Any], warnings: Sequence[Mapping[str, Any]]) -> list[str]:
    if "entity_id" in result:
        return [f"{result.get('entity_group', 'GPU')} {result['entity_id']}"]
    ids = str(result.get("gpu_id", result.get("gpu_ids", "")))
    return [f"GPU {number}" for number in re.findall(r"\d+", ids)] or [_named(warnings)]


def _named(warnings: Sequence[Mapping[str, Any]]) -> str:
    """Return the one GPU that the warnings of a result name, where the result itself names none."""
    names = {gpu_in(str(warning["warning"])) for warning in warnings}
    return names.pop() if len(names) == 1 else ""


def _warnings(found: object) -> Iterator[Mapping[str, Any]]:
    for each in found if isinstance(found, list) else [found] if found else []:
        if isinstance(each, dict):  # in 3.3 the text of a deployment test is under "warnings"
            yield {**each, "warning": str(each.get("warning", each.get("warnings", "")))}
        else:
            yield {"warning": str(each)}


# "| PCIe  | Fail - GPUs: 2, 5  |" up to 3, "|  | GPU2: Fail |" below the test's own line since 4. A warning is named
# "Warning", since 4 "Warning: GPU2", and goes on in lines without a name: 45 characters each (dcgmi/Diag.cpp,
# DisplayVerboseInfo), so words are cut.
_ROW: Final = re.compile(r"^\s*\| ?(.*?)\s*\| ?(.*?) ?\|\s*$")
_RESULT: Final = re.compile(r"(Pass|Fail|Warn|Skip|Not Run)(?: - (All|GPUs?: [\d, ]+))?$")
_ENTITY: Final = re.compile(r"([A-Za-z_]+?) ?(\d+): (Pass|Fail|Warn|Skip|Not Run)$")
_REMARK: Final = re.compile(r"(Warning|Error|Info)(?:: ([A-Za-z_]+?)(\d+))?$")
MOST_IN_A_ROW: Final = 45
_BORDER: Final = re.compile(r"\+-+\+-+\+?")


class _Remark(NamedTuple):
    kind: str
    test: str
    entity: str
    words: str


def _of_table(text: str) -> Iterator[_Verdict]:
    verdicts: list[_Verdict] = []
    remarks: list[_Remark] = []
    test, deployment, goes_on = "", False, False
    for line in text.splitlines():
        if (section := re.match(r"\s*[|+]-----  (\w+)", line)) is not None:
            test, deployment, goes_on = "", section[1] == "Deployment", False
            continue
        if (row := _ROW.match(line)) is None:
            continue
        name, cell = row[1].strip(), row[2]
        found = _results(cell.strip())
        if (remark := _REMARK.match(name)) is not None:
            place = f"{remark[2]} {remark[3]}" if remark[2] else gpu_in(cell)
            remarks.append(_Remark(remark[1], test, place, cell[:MOST_IN_A_ROW]))
            goes_on = True
            if remark[1] == "Error" and not test:  # of all tests of deployment, which have no rows then
                verdicts.append(_Verdict("", deployment, place, "fail", ()))
        elif not name and goes_on and not found:
            remarks[-1] = remarks[-1]._replace(words=remarks[-1].words + cell[:MOST_IN_A_ROW])
        else:
            test, goes_on = name or test, False
            verdicts += [_Verdict(test, deployment, entity, status.lower(), ()) for entity, status in found]
    yield from _with_remarks(verdicts, remarks)


def _is_closed(text: str) -> bool:
    lines = [line.strip() for line in text.splitlines() if line.lstrip()[:1] in {"|", "+"}]
    return bool(lines) and _BORDER.fullmatch(lines[-1]) is not None


def _results(cell: str) -> list[tuple[str, str]]:
    """Return entity and status of a cell; without an entity where it is of all or of none."""
    if (entity := _ENTITY.match(cell)) is not None:
        return [(f"{entity[1]} {entity[2]}", entity[3])]
    if (result := _RESULT.match(cell)) is not None:
        return [(f"GPU {number}", result[1]) for number in re.findall(r"\d+", result[2] or "")] or [("", result[1])]
    return []


def _with_remarks(verdicts: Sequence[_Verdict], remarks: Sequence[_Remark]) -> Iterator[_Verdict]:
    """Yield the verdicts with the warnings of their GPU, and of none; not the line of a test whose GPUs have lines."""
    detailed = {verdict.test for verdict in verdicts if verdict.entity}
    for verdict in verdicts:
        if verdict.entity or verdict.test not in detailed:
            warnings = tuple(
                {"warning": " ".join(remark.words.split())} for remark in remarks
                if remark.kind != "Info" and remark.test == verdict.test
                and (not verdict.entity or remark.entity in ("", verdict.entity))
            )  # fmt: skip
            yield verdict._replace(warnings=warnings, entity=verdict.entity or _named(warnings))


def _is_loss(verdict: _Verdict) -> bool:
    """Return whether a failed test is a loss of hardware: each warning by its category, else by its words."""
    if not verdict.warnings:
        return not verdict.deployment or any(word in verdict.test.lower() for word in HARDWARE_IN_DEPLOYMENT)
    return any(_warns_of_loss(warning) for warning in verdict.warnings)


def _warns_of_loss(warning: Mapping[str, Any]) -> bool:
    words = str(warning["warning"])
    if "error_category" in warning and not losses(words):
        error, of_hardware = warning.get("error_id"), warning["error_category"] in CATEGORIES_OF_LOSS
        software = error in ERRORS_OF_NO_LOSS or warning.get("error_severity") == SEVERITY_CONFIG
        return error in ERRORS_OF_LOSS or (of_hardware and not software)
    return bool(losses(words) or LOSS.search(words))


def _words(verdict: _Verdict) -> str:
    told = "; ".join(str(warning["warning"]) for warning in verdict.warnings[:3])
    place = f" on {verdict.entity}" if verdict.entity else ""
    return short(f"{verdict.test or 'deployment'}{place} failed{': ' if told else ''}{told}")
