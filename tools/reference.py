"""Write the manual's reference of commands, alerts, checks and peaks from the code: ``make docs``.

    python tools/reference.py commands docs/reference/commands.md
    python tools/reference.py alerts docs/reference/alerts.md
    python tools/reference.py checks docs/reference/checks.md
    python tools/reference.py peaks docs/reference/peaks.md

Each command is started up to the moment at which it would parse its arguments, and its parser is read there. So a flag
is listed exactly if the command takes it, wherever its parser is built.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any
from unittest import mock

import yaml

from pyrometer_exporters.node.checks.check import Check, discover
from pyrometer_exporters.node.checks.config import EXPECTATIONS
from pyrometer_exporters.node.train.peaks import PEAKS, Peak

ROOT = Path(__file__).resolve().parents[1]
# Commands that hand some first words to a parser of their own.
SUBCOMMANDS = {"pyrometer-alerting": ("check-outlets", "check-slack", "digest", "explain", "replay")}
NOTES = {
    "pyrometer-alerting": "`pyrometer-alerting check-config`, with the same flags, checks them and the configuration"
    " file and starts nothing.\n\n"
}
# Commands without a parser of their own.
PURPOSES = {"check-config": "Check the flags and the configuration file, and start nothing."}
NOT_FOR_USERS = ("pyrometer-demo",)
MODULES = ("pyrometer.flops.__main__",)

COMMANDS_HEAD = """\
# Commands

Generated from the commands' own parsers: change those, then run `make docs`.

Flags are spelled as in the Prometheus ecosystem and can't be abbreviated. Every command has `--help` and `--version`.
Bad input is one line on standard error and exit status 2. Secrets come from files or the environment, never from flags.

"""
ALERTS_HEAD = """\
# Alerts

Generated from `alert_rules/`: change the rules, then run `make docs`. Each name leads to its runbook.

| severity | means |
|---|---|
| critical | wake someone |
| warning | look today |
| info | digest only |

| alert | severity | component | fires after | summary |
|---|---|---|---|---|
"""
CHECKS_HEAD = """\
# Checks

Generated from the checks' own definitions: change those, then run `make docs`. [How to use them](../checks.md).

Critical: a job would fail or be slow on this node. Warning: to be looked at. Anchor: whose practice in the field it is.
Thresholds and switches are those of `checks` in the configuration.

"""
PEAKS_HEAD = """\
# Peaks

Generated from `exporters/pyrometer_exporters/node/train/peaks.py`: change that, then run `make docs`.

Peak dense TFLOP/s of one GPU, by its exact name as `nvidia-smi -L` and torch print it, with fp32 accumulation; never
the figures with sparsity, which are twice as high. A GPU or type that isn't listed has no peak: its runs have FLOP/s
but no MFU, unless they give `peak_flops=`. GeForce cards aren't listed, nor vGPU and MIG names, nor boards made for one
customer whose peak nobody states.
`pyrometer-doctor` names GPUs whose power limit or clocks keep them from their peak.

Two checks beside the datasheets (`tests/exporters/node/train/test_peaks.py` has both). By units x boost clock x
operations per clock, within 0.8 %: 43 boards, from V100 to RTX PRO and MI355X. Dense and within 2.5 % of tables of
others, each named there: A100, A40, A2, H100 SXM and PCIe, H200, H20, L40, L40S, B200, GB200, B300, GB300, RTX 4000 and
5000 Ada, RTX PRO 6000 and 2000, MI250, MI250X, MI300X. By datasheet alone: A10G, A16, H100, H800 and H200 NVL, L2,
RTX PRO 4000, 4500, 5000 of 48 GB and 6000 Server. A800, H800 and GH200 have the chip, the units and the clocks of the
A100 and the H100.

| GPU | BF16 | FP16 | TF32 | FP8 | FP4 | source |
|---|---|---|---|---|---|---|
"""
EXPECT_HEAD = """\

## What can be stated

Under `expect` in the configuration; what isn't stated is learned from the node's last healthy day where it can be.

| key | meaning |
|---|---|
"""


class _ParserFound(BaseException):
    """Carries the parser out of a command that was about to parse; no handler of the command catches it."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        super().__init__()
        self.parser = parser


def commands() -> list[EntryPoint]:
    """Return our console scripts, by name."""
    scripts = {each.name: each for each in entry_points(group="console_scripts") if each.name.startswith("pyrometer-")}
    return [scripts[name] for name in sorted(scripts) if name not in NOT_FOR_USERS]


def parser_of(main: Callable[..., object], prog: str, *words: str) -> argparse.ArgumentParser:
    """Return the parser that a command uses when it is called with these words.

    Raises:
        LookupError: The command ended without parsing anything.
    """

    def found(self: argparse.ArgumentParser, *_args: object, **_kwargs: object) -> None:
        raise _ParserFound(self)

    with (
        mock.patch.object(sys, "argv", [prog, *words]),
        mock.patch.object(argparse.ArgumentParser, "parse_args", found),
        mock.patch.object(argparse.ArgumentParser, "parse_known_args", found),
    ):
        try:
            main()
        except _ParserFound as caught:
            return caught.parser
    msg = f"{prog} {' '.join(words)} parsed no arguments"
    raise LookupError(msg)


def commands_page() -> str:
    """Return the reference of all commands as Markdown."""
    parts = [COMMANDS_HEAD]
    for script in commands():
        main = script.load()
        parts.append(section(script.name, parser_of(main, script.name)) + NOTES.get(script.name, ""))
        words = SUBCOMMANDS.get(script.name, ())
        parts += [section(f"{script.name} {word}", parser_of(main, script.name, word), "###") for word in words]
    for module in MODULES:
        main = __import__(module, fromlist=["main"]).main
        parser = parser_of(main, module)
        parts.append(section(parser.prog, parser))
    return "".join(parts).rstrip() + "\n"


def section(title: str, parser: argparse.ArgumentParser, level: str = "##") -> str:
    """Return a command's heading, description, flags by group, and subcommands."""
    parts = [f"{level} {title}\n\n{_paragraph(parser.description)}"]
    subparsers = [action for action in _actions(parser) if isinstance(action.choices, dict)]
    for group in parser._action_groups:  # noqa: SLF001 - argparse has no public way to list its groups
        rows = [_row(parser, action) for action in group._group_actions if _listed(action)]  # noqa: SLF001
        if rows:
            own = group.title not in ("positional arguments", "options", "optional arguments")
            head = f"**{group.title}**: {group.description or ''}\n\n" if own else ""
            parts.append(f"{head}| argument | default | meaning |\n|---|---|---|\n{''.join(rows)}\n")
    for action in subparsers:
        purposes = {each.dest: each.help for each in action._choices_actions}  # type: ignore[attr-defined]  # noqa: SLF001
        for name, sub in action.choices.items():  # type: ignore[union-attr]
            sub.description = sub.description or purposes.get(name)
            parts.append(section(f"{title} {name}", sub, "###"))
    return "".join(parts)


def _actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return parser._actions  # noqa: SLF001 - argparse has no public way to list its arguments


def _listed(action: argparse.Action) -> bool:
    hidden = action.help == argparse.SUPPRESS or isinstance(action.choices, dict)
    return not hidden and not {"--help", "--version"} & set(action.option_strings)


def _row(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    names = ", ".join(f"`{name}`" for name in action.option_strings) or f"`{action.metavar or action.dest}`"
    if action.option_strings and action.nargs != 0 and not isinstance(action, argparse.BooleanOptionalAction):
        names += f" `{_value(action)}`"
    needed = " (required)" if action.required and action.option_strings else ""
    return f"| {names}{needed} | {_default(action)} | {_cell(_help(parser, action))} |\n"


def _value(action: argparse.Action) -> str:
    if action.choices is not None and not isinstance(action.choices, range):
        return "|".join(str(choice) for choice in action.choices if choice != "").replace("|", r"\|")
    metavar = action.metavar or action.dest.rpartition(".")[2].upper().replace("-", "_")
    return " ".join(metavar) if isinstance(metavar, tuple) else metavar


def _default(action: argparse.Action) -> str:
    text = default_of(action)
    return text if isinstance(action.default, bool) or not text else f"`{_cell(text)}`"


def default_of(action: argparse.Action) -> str:
    """Return an argument's default as text; empty where there is none to speak of."""
    if action.default in (None, argparse.SUPPRESS, "", [], ()):
        return ""
    if isinstance(action.default, bool):
        return ("on" if action.default else "off") if isinstance(action, argparse.BooleanOptionalAction) else ""
    return str(action.default)


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    """Return the help without the default, which has a column of its own, and which Python versions add differently."""
    text = (action.help or "").replace(" (default: %(default)s)", "").replace("(default: %(default)s)", "")
    return text % {**vars(action), "prog": parser.prog}


def _paragraph(text: str | None) -> str:
    return f"{_cell(' '.join((text or '').split()))}\n\n" if text else ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|").replace("<", "&lt;").replace("*", r"\*")


def alerts_page() -> str:
    """Return the table of all alerts as Markdown, ordered as their runbooks are."""
    runbooks = (ROOT / "docs/alerts.md").read_text(encoding="utf-8")
    ordered = sorted(alerts(), key=lambda rule: runbooks.find(f"\n## {rule['alert']}\n"))
    return ALERTS_HEAD + "".join(map(_alert_row, ordered))


def alerts() -> Iterator[dict[str, Any]]:
    """Return all alerting rules as they stand in the rule files."""
    for path in sorted((ROOT / "alert_rules").glob("*.rules.yaml")):
        for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]:
            yield from (rule for rule in group["rules"] if "alert" in rule)


def _alert_row(rule: dict[str, Any]) -> str:
    name, labels = rule["alert"], rule["labels"]
    summary = _without_templates(rule["annotations"]["summary"]).strip()
    after = rule.get("for", "at once")
    link = f"[{name}](../alerts.md#{name.lower()})"
    return f"| {link} | {labels['severity']} | {labels['component']} | {after} | {summary} |\n"


def _without_templates(text: str) -> str:
    """Return a summary with its labels in italics, the first branch of each choice, and … for any other expression."""
    text = " ".join(text.split())
    text = re.sub(r"{{-? *with \$labels\.(\w+) *}}(.*?){{ *\. *}}(.*?){{ *end *}}", r"\2*\1*\3", text)
    text = re.sub(r"{{-? *if [^}]*}}(.*?)(?:{{-? *else.*?)?{{-? *end *-?}}", r"\1", text)
    text = re.sub(r"{{-? *\$labels\.(\w+) *-?}}", r"*\1*", text)
    return re.sub(r"{{.*?}}", "…", text).replace("|", r"\|")


def checks_page() -> str:
    """Return the table of all checks, and of what can be stated, as Markdown."""
    head = (
        "| check | passes when | source | anchor | severity | settings | what to do |\n|---|---|---|---|---|---|---|\n"
    )
    stated = "".join(f"| `{key}` | {_cell(meaning)} |\n" for key, (_, meaning) in EXPECTATIONS.items())
    return CHECKS_HEAD + head + "".join(map(_check_row, discover())) + EXPECT_HEAD + stated


def _check_row(check: Check) -> str:
    settings = [f"`{name}: {value:g}`" for name, value in check.limits.items()]
    settings += [] if check.enabled else ["off unless switched on"]
    cells = (check.title, check.source, check.anchor, check.severity, ", ".join(settings), check.action)
    return f"| `{check.name}` | {' | '.join(map(_cell, cells))} |\n"


def peaks_page() -> str:
    """Return the table of all peaks as Markdown."""
    return PEAKS_HEAD + "".join(f"| {name} | {_peak_row(peak)} |\n" for name, peak in PEAKS.items())


def _peak_row(peak: Peak) -> str:
    *numbers, source = peak
    return " | ".join(["-" if number is None else f"{number:,g}" for number in numbers] + [str(source)])


PAGES: dict[str, Callable[[], str]] = {
    "commands": commands_page,
    "alerts": alerts_page,
    "checks": checks_page,
    "peaks": peaks_page,
}


def main(arguments: Sequence[str]) -> int:
    """Write a page into the file named; return the exit status."""
    if len(arguments) != 2 or arguments[0] not in PAGES:
        sys.stderr.write(f"usage: python tools/reference.py {'|'.join(PAGES)} FILE\n")
        return 2
    Path(arguments[1]).write_text(PAGES[arguments[0]](), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
