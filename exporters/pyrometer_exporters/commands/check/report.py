"""The answers of ``pyrometer-check``: lines for people, JSON for programs, and the exit status of Nagios' plugins."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from pyrometer_exporters.node.checks.look import Look, Result

OK, WARNING, CRITICAL, UNKNOWN = range(4)
WORDS: Final = ("OK", "WARNING", "CRITICAL", "UNKNOWN")
FIT: Final = "fit"
NOT_KNOWN: Final = "unknown: "
"""How an answer for jobs begins where nobody could look."""


def status(look: Look, *, fail_open: bool, for_jobs: bool = False) -> int:
    """Return the exit status: 2 a critical check failed, 1 another one, 3 none did but some could not be run, else 0.

    ``fail_open``: a check that could not be run doesn't count. ``for_jobs``: what keeps no job away is no more than a
    warning.
    """
    critical = any(result.keeps_jobs_away for result in look.results) if for_jobs else not look.healthy
    if critical:
        return CRITICAL
    if look.of("failed"):
        return WARNING
    return UNKNOWN if _blind(look) and not fail_open else OK


def _blind(look: Look) -> list[Result]:
    """Return the checks whose silence counts: a warning's doesn't, as it would not keep a job away either."""
    return [result for result in look.of("unknown") if result.severity == "critical"]


def lines(look: Look, *, fail_open: bool) -> list[str]:
    """Return a line for each check that failed, with what to do, and for each that could not be run; else one line."""
    failed, unknown = look.of("failed"), look.of("unknown")
    text = [_line(WORDS[CRITICAL if result.severity == "critical" else WARNING], result) for result in failed]
    blind = _blind(look)
    text += [_line(WORDS[UNKNOWN], result) for result in unknown if result in blind]
    text += [f"NOTE {result.check.name}: {result.verdict.reason}" for result in look.of("ok") if result.verdict.reason]
    text += [f"NOTE {note}" for note in look.notes]
    if not failed and status(look, fail_open=fail_open) == OK:
        passed, away = len(look.of("ok")), len(look.of("absent"))
        text.insert(0, f"OK {look.node}: {passed} checks passed, {away} do not apply, {len(unknown)} could not be run")
    return text


def reasons(look: Look) -> str:
    """Return the answer for schedulers, one line: failed checks, else ``fit`` or ``unknown: <checks>``.

    Critical checks that failed are ``<check>: <reason>``, separated by ``; ``; not what rests on learned facts alone.
    """
    away = [result for result in look.results if result.keeps_jobs_away]
    if away:
        return "; ".join(f"{result.check.name}: {_in_line(result).replace('; ', ', ')}" for result in away)
    blind = _blind(look)
    return f"{NOT_KNOWN}{', '.join(result.check.name for result in blind)}" if blind else FIT


def _in_line(result: Result) -> str:
    """Return the reason as a part of a line, whatever names people have given to mounts and processes."""
    printed = "".join(char if char.isprintable() else " " for char in result.verdict.reason)
    return " ".join(printed.split())


def _line(word: str, result: Result) -> str:
    text = f"{word} {result.check.name}: {_in_line(result)}"
    return f"{text}. Do: {result.action}" if result.verdict.state == "failed" else f"{text} (could not be run)"


def as_json(look: Look, *, fail_open: bool) -> str:
    """Return all of it as one JSON object."""
    return json.dumps(
        {
            "node": look.node,
            "at": look.at,
            "status": WORDS[status(look, fail_open=fail_open)].lower(),
            "checks": [_object(result) for result in look.results],
            "notes": list(look.notes),
        }
    )


def _object(result: Result) -> Mapping[str, Any]:
    more = {"action": result.action, "learned": result.verdict.learned} if result.verdict.state == "failed" else {}
    return {
        "check": result.check.name,
        "state": result.verdict.state,
        "severity": result.severity,
        "reason": result.verdict.reason,
        "seconds": round(result.seconds, 4),
        **more,
    }
