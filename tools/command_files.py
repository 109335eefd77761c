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
from pathlib import Path

import shtab
from argparse_manpage.manpage import Manpage  # type: ignore[import-untyped]
from tools import reference

ROOT = Path(__file__).resolve().parents[1]
VERSION = (ROOT / "VERSION").read_text(encoding="utf-8").strip()
# Commands that take the program's own flags as well.
SHARING = {"pyrometer-alerting": ("check-config", "check-slack")}
# Placeholders and destinations of arguments that are completed by file names.
_FILES = re.compile(r".*FILE|DIR|FOLDER|DIRECTORY|PATH|log|config|folder|source|files|directory|.*[.-]file|.*\.path")
_EXIT_STATUS = "Bad input is one line on standard error and status 2; any other status is in the description above."
_SEE_ALSO = "The manual, docs/ of the source: commands in docs/reference/commands.md."
# Bash hands over --flag=value as three words.
_WITHOUT_EQUALS = """
{function}_words() {{
    local -a words=() ; local word
    for word in "${{COMP_WORDS[@]}}"; do [[ $word == "=" ]] || words+=("$word"); done
    COMP_CWORD=$((COMP_CWORD - ${{#COMP_WORDS[@]}} + ${{#words[@]}})) COMP_WORDS=("${{words[@]}}")
    {function}
}}
complete -o bashdefault -F {function}_words {name}
"""


def parser(name: str) -> argparse.ArgumentParser:
    """Return a command's parser, with the parsers of its first words as those of its subcommands.

    Raises:
        LookupError: We have no such command.
    """
    scripts = {script.name: script for script in reference.commands()}
    if name not in scripts:
        raise LookupError(f"no command {name}: known are {', '.join(scripts)}")
    main = scripts[name].load()
    root = reference.parser_of(main, name)
    own, sharing = reference.SUBCOMMANDS.get(name, ()), SHARING.get(name, ())
    if own:
        below = root.add_subparsers(title="commands", parser_class=argparse.ArgumentParser)
        for word in dict.fromkeys((*own, *sharing)):
            parents = [reference.parser_of(main, name)] if word in sharing else []
            parents += [reference.parser_of(main, name, word)] if word in own else []
            purpose = reference.PURPOSES.get(word) or parents[-1].description
            below.add_parser(
                word, parents=parents, add_help=False, conflict_handler="resolve", description=purpose, help=purpose
            )
    for action in actions(root):
        _describe(action)
    return root


def actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield all arguments of a parser and of those below it: argparse has no public way."""
    for action in parser._actions:  # noqa: SLF001
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for below in action.choices.values():
                yield from actions(below)
        else:
            yield action


def _describe(action: argparse.Action) -> None:
    """Give an argument what the two libraries would otherwise not know: its choices, its files and its default."""
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    if action.choices is None and metavar.startswith("{"):
        action.choices = metavar.strip("{}").split(",")
    if action.nargs != 0 and (_FILES.fullmatch(metavar) or _FILES.fullmatch(action.dest)):
        action.complete = shtab.FILE  # type: ignore[attr-defined]
    if action.help and action.help != argparse.SUPPRESS:
        action.help = " ".join(action.help.split())
        if reference.default_of(action) and "default" not in action.help:
            action.help += " (default: %(default)s)"


def man_page(root: argparse.ArgumentParser) -> str:
    """Return a command's manual page, as roff."""
    page = Manpage(root)
    page.description = (root.description or "").partition(". ")[0].rstrip(".")
    page.date, page.source, page.manual = "", f"Pyrometer {VERSION}", "Pyrometer"
    page.add_section("exit status", "=", _EXIT_STATUS)
    page.add_section("see also", "=", _SEE_ALSO)
    return str(page)


def bash(root: argparse.ArgumentParser) -> str:
    """Return the completion for bash."""
    function = f"_shtab_{root.prog.replace('-', '_')}"
    return shtab.complete(root, "bash") + _WITHOUT_EQUALS.format(function=function, name=root.prog)


def files(names: Sequence[str] = ()) -> dict[str, str]:
    """Return all files by path below /usr/share, of these commands or of all."""
    texts = {}
    for name in names or [script.name for script in reference.commands()]:
        root = parser(name)
        texts[f"man/man1/{name}.1"] = man_page(root)
        texts[f"bash-completion/completions/{name}"] = bash(root)
        texts[f"zsh/site-functions/_{name}"] = shtab.complete(root, "zsh")
        texts[f"fish/vendor_completions.d/{name}.fish"] = shtab.complete(root, "fish")
    return texts


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
