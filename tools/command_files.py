"""Write man pages and the completions of bash, zsh and fish from the commands' own parsers.

    python -m tools.command_files FOLDER [COMMAND ...]     make command-files: into dist/share

Below FOLDER are man/man1, bash-completion/completions, zsh/site-functions and fish/vendor_completions.d, as below
/usr/share. Nothing of it is kept in the tree, so nothing of it can be out of date.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools import completions, reference
from tools.completions import Argument, Command, Part

ROOT = Path(__file__).resolve().parents[1]
VERSION = (ROOT / "VERSION").read_text(encoding="utf-8").strip()
# Commands that take the program's own flags as well.
SHARING = {"pyrometer-alerting": ("check-config", "check-slack")}
_FILES = re.compile(r"FILE|REGEX_FILE")
_FOLDERS = re.compile(r"DIR|FOLDER|DIRECTORY|PATH")
# An argument that is completed by file names, by the name of its destination.
_FILE_ARGUMENTS = ("log", "config", "config.file", "folder", "source", "files", "directory")


@dataclass(frozen=True)
class _Source:
    """A command's own words, or those of one of its commands."""

    word: str
    parser: argparse.ArgumentParser
    purpose: str


def command(name: str) -> Command:
    """Return a command with its parts.

    Raises:
        LookupError: We have no such command.
    """
    scripts = {script.name: script for script in reference.commands()}
    if name not in scripts:
        raise LookupError(f"no command {name}: known are {', '.join(scripts)}")
    main = scripts[name].load()
    root = reference.parser_of(main, name)
    sources = [_Source("", root, root.description or "")]
    for word in reference.SUBCOMMANDS.get(name, ()):
        parser = reference.parser_of(main, name, word)
        sources.append(_Source(word, parser, parser.description or ""))
    for action in root._actions:  # noqa: SLF001  argparse has no public way to list its arguments
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            purposes = {each.dest: each.help or "" for each in action._choices_actions}  # noqa: SLF001
            sources += [_Source(word, parser, purposes.get(word, "")) for word, parser in action.choices.items()]
    flags = tuple(each for each in _arguments(root) if each.names)
    sharing = SHARING.get(name, ())
    parts = [_part(each, flags if each.word in sharing else ()) for each in sources]
    known = {part.word for part in parts}
    parts += [Part(word, reference.PURPOSES[word], (), flags) for word in sharing if word not in known]
    return Command(name, tuple(parts))


def _part(source: _Source, shared: tuple[Argument, ...]) -> Part:
    own = {name for each in shared for name in each.names}
    arguments = tuple(each for each in _arguments(source.parser) if not own & set(each.names))
    return Part(source.word, _text(source.purpose), arguments, shared)


def _arguments(parser: argparse.ArgumentParser) -> Iterator[Argument]:
    for group in parser._action_groups:  # noqa: SLF001
        own = group.title not in ("positional arguments", "options", "optional arguments")
        for action in group._group_actions:  # noqa: SLF001
            if action.help != argparse.SUPPRESS and not isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
                yield _argument(parser, action, _text(group.title or "") if own else "")


def _argument(parser: argparse.ArgumentParser, action: argparse.Action, group: str) -> Argument:
    takes = action.nargs != 0 and not isinstance(action, argparse.BooleanOptionalAction)
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    value = metavar or action.dest.rpartition(".")[2].upper().replace("-", "_")
    choices = () if action.choices is None or isinstance(action.choices, range) else tuple(map(str, action.choices))
    if not choices and value.startswith("{"):
        choices = tuple(value.strip("{}").split(","))
    return Argument(
        names=tuple(action.option_strings),
        value=("|".join(choices) if choices else value) if takes else "",
        choices=choices,
        files=takes and _is_file(action, value),
        help=_help(parser, action),
        required=bool(action.required and action.option_strings),
        group=group,
    )


def _is_file(action: argparse.Action, value: str) -> bool:
    named = _FILES.search(value) or _FOLDERS.fullmatch(value)
    return bool(named) or action.dest in _FILE_ARGUMENTS or action.dest.endswith((".file", "-file", ".path"))


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    text = _text((action.help or "") % {**vars(action), "prog": parser.prog})
    default = reference.default_of(action)
    return text if not default or "default" in text else f"{text} (default: {default})".strip()


def _text(text: str) -> str:
    return " ".join(text.split())


def man_page(found: Command) -> str:
    """Return a command's manual page, as roff."""
    root, *others = found.parts
    lines = [f'.TH {_roff(found.name.upper())} 1 "" "Pyrometer {VERSION}" "Pyrometer"', ".SH NAME"]
    lines += [f"{_roff(found.name)} \\- {_roff(root.purpose.partition('. ')[0].rstrip('.'))}", ".SH SYNOPSIS"]
    lines += [
        f".B {_roff(found.name)}{' ' + _roff(part.word) if part.word else ''}\n{_usage(part)}\n.br"
        for part in found.parts
    ]
    lines += [".SH DESCRIPTION", _roff(root.purpose), ".SH OPTIONS", *_described(root)]
    if others:
        lines.append(".SH COMMANDS")
    for part in others:
        shares = " Takes the flags above as well." if part.shared else ""
        lines += [f".SS {_roff(part.word)}", _roff(part.purpose + shares), *_described(part)]
    lines += [
        ".SH EXIT STATUS",
        _roff("Bad input is one line on standard error and status 2; any other status is in the description above."),
        ".SH SEE ALSO",
        _roff("The manual, docs/ of the source: commands in docs/reference/commands.md."),
    ]
    return "\n".join(lines) + "\n"


def _usage(part: Part) -> str:
    words = ["[OPTION]..."] if any(each.names for each in part.arguments) else []
    needed = [f"{each.names[0]} {each.value}" for each in part.arguments if each.required]
    return _roff(" ".join(words + needed + [each.value for each in part.arguments if not each.names]))


def _described(part: Part) -> Iterator[str]:
    group = ""
    for each in part.arguments:
        if each.group != group:
            group = each.group
            yield f".PP\n.B {_roff(group)}"
        names = ", ".join(f"\\fB{_roff(name)}\\fR" for name in each.names)
        value = f"\\fI{_roff(each.value)}\\fR" if each.value else ""
        yield f".TP\n{' '.join(filter(None, (names, value)))}\n{_roff(each.help) or '.'}"


def _roff(text: str) -> str:
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    return f"\\&{escaped}" if escaped.startswith(".") else escaped


def files(names: Sequence[str] = ()) -> dict[str, str]:
    """Return all files by path below /usr/share, of these commands or of all."""
    found = {}
    for name in names or [script.name for script in reference.commands()]:
        each = command(name)
        found[f"man/man1/{name}.1"] = man_page(each)
        found[f"bash-completion/completions/{name}"] = completions.bash(each)
        found[f"zsh/site-functions/_{name}"] = completions.zsh(each)
        found[f"fish/vendor_completions.d/{name}.fish"] = completions.fish(each)
    return found


def main(arguments: Sequence[str]) -> int:
    """Write them; return the exit status."""
    if not arguments:
        sys.stderr.write("usage: python -m tools.command_files FOLDER [COMMAND ...]\n")
        return 2
    for name, text in files(arguments[1:]).items():
        path = Path(arguments[0]) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
