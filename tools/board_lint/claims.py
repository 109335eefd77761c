"""Words that say that all is well: only an answer may show them, never the lack of one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from tools.board_lint.finding import Finding, Json, LintContext, panels, title

Sample = tuple[Mapping[str, str], float]

_CLAIM = re.compile(
    r"\b(none|nobody|nothing|nowhere|never|not firing|no failures?|no errors?|no loss|no open \w+|all \w+|"
    r"every \w+|ok|fine|healthy|quiet|steady)\b(?! data)"
)


def check(name: str, board: Json, context: LintContext) -> Iterator[Finding]:  # noqa: ARG001  all checks look alike
    """Yield the panels whose text for no answer, or for an absent value, claims that all is well."""
    for panel in panels(board):
        absent = [_no_value(panel), *(text for text, matches in _mapped(panel) if matches is None)]
        for text in filter(_CLAIM.search, absent):
            yield Finding(
                name,
                title(panel),
                f"without data it says {text!r}",
                "Give the panel `healthy` or `watched` with a proof that somebody looked; else say no data.",
            )


def claims(panel: Json, answers: Sequence[Sequence[Sample]]) -> list[str]:
    """Return the words with which a panel says that all is well, given the answers to its queries."""
    samples = [sample for answer in answers for sample in answer]
    if not samples:
        return list(filter(_CLAIM.search, [_no_value(panel)]))
    found = {text for labels, _ in samples for text in labels.values() if _CLAIM.search(text)}
    for text, matches in _mapped(panel):
        if matches is not None and _CLAIM.search(text) and any(value in matches for _, value in samples):
            found.add(text)
    return sorted(found)


def _no_value(panel: Json) -> str:
    return str(panel.get("fieldConfig", {}).get("defaults", {}).get("noValue", ""))


def _mapped(panel: Json) -> Iterator[tuple[str, list[float] | None]]:
    """Yield the texts of value mappings with their values; None stands for absent values."""
    config = panel.get("fieldConfig", {})
    mappings = list(config.get("defaults", {}).get("mappings", []))
    for override in config.get("overrides", []):
        for setting in override["properties"]:
            mappings += setting["value"] if setting["id"] == "mappings" else []
    for each in mappings:
        if each["type"] == "special":
            yield str(each["options"]["result"].get("text", "")), None
        elif each["type"] == "value":
            for value, result in each["options"].items():
                yield str(result.get("text", "")), [float(value)] if _is_number(value) else []


def _is_number(text: str) -> bool:
    return re.fullmatch(r"-?\d+(\.\d+)?", text) is not None
