"""Completions of a command's flags, their choices and files, for bash, zsh and fish."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Argument:
    """A flag, or without names an argument by its place."""

    names: tuple[str, ...]
    value: str
    """Its placeholder; empty for a switch."""
    choices: tuple[str, ...]
    files: bool
    help: str
    required: bool
    group: str


@dataclass(frozen=True)
class Part:
    """A command's own arguments (``word`` is empty), or those of one of its commands."""

    word: str
    purpose: str
    arguments: tuple[Argument, ...]
    shared: tuple[Argument, ...] = ()
    """Flags of the program itself that its command takes as well."""

    @property
    def flags(self) -> tuple[Argument, ...]:
        """Those with names."""
        return tuple(each for each in (*self.arguments, *self.shared) if each.names)

    @property
    def takes_files(self) -> bool:
        """Files are completed for an argument by its place."""
        return any(each.files for each in self.arguments if not each.names)


@dataclass(frozen=True)
class Command:
    """A program on the PATH."""

    name: str
    parts: tuple[Part, ...]

    @property
    def words(self) -> tuple[str, ...]:
        """Its commands."""
        return tuple(part.word for part in self.parts if part.word)


_BASH = """\
# bash completion of {name}, made from its parser.
{function}() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} words=""
    # --flag=value comes as three words.
    [[ $previous == "=" ]] && previous=${{COMP_WORDS[COMP_CWORD-2]}}
    [[ $current == "=" ]] && current=""
    case ${{COMP_WORDS[1]}}:$previous in
{values}    esac
    if [[ -z $words ]]; then
        case ${{COMP_WORDS[1]}} in
{flags}        esac
    fi
    # shellcheck disable=SC2207
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o bashdefault -o default -F {function} {name}
"""


def bash(command: Command) -> str:
    """Return the completion for bash. An empty answer is completed by file names."""
    values, flags = [], []
    for part in (*command.parts[1:], command.parts[0]):
        pattern = part.word or "*"
        for flag in (each for each in part.flags if each.value):
            names = "|".join(f"{pattern}:{name}" for name in flag.names)
            values.append(f"        {names}) {_bash_value(flag)} ;;\n")
        words = " ".join(name for flag in part.flags for name in flag.names)
        first = "" if part.word or not command.words else f"{' '.join(command.words)} "
        flags.append(f'            {pattern}) words="{first}{words}" ;;\n')
    function = f"_{command.name.replace('-', '_')}"
    return _BASH.format(name=command.name, function=function, values="".join(values), flags="".join(flags))


def _bash_value(flag: Argument) -> str:
    if flag.choices:
        return f'words="{" ".join(flag.choices)}"'
    return "return" if flag.files else "compopt +o bashdefault +o default 2>/dev/null; return"


def zsh(command: Command) -> str:
    """Return the completion for zsh."""
    lines = [f"#compdef {command.name}", "# Made from its parser."]
    root, *others = command.parts
    if others:
        lines.append("case $words[2] in")
        for part in others:
            lines += [
                f"  {part.word})",
                "    shift words; (( CURRENT-- ))",
                *_zsh_arguments(part, "    "),
                "    return ;;",
            ]
        lines.append("esac")
        described = " ".join(_quoted(f"{part.word}:{part.purpose}") for part in others)
        lines += [
            f"local -a commands=({described})",
            *_zsh_arguments(root, "", "'1:command:{_describe command commands}'"),
        ]
    else:
        lines += _zsh_arguments(root, "")
    return "\n".join(lines) + "\n"


def _zsh_arguments(part: Part, indent: str, *more: str) -> Iterator[str]:
    specs = [*more, *(spec for flag in part.flags for spec in _zsh_flag(flag))]
    if part.takes_files:
        specs.append("'*:file:_files'")
    yield f"{indent}_arguments " + f" \\\n{indent}  ".join(specs or ["''"])


def _zsh_flag(flag: Argument) -> Iterator[str]:
    said = flag.help.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")
    for name in flag.names:
        if not flag.value:
            yield _quoted(f"{name}[{said}]")
            continue
        action = f"({' '.join(flag.choices)})" if flag.choices else "_files" if flag.files else " "
        equals = "=" if name.startswith("--") else "+"
        yield _quoted(f"{name}{equals}[{said}]:{'value' if flag.choices else flag.value.replace(':', '-')}:{action}")


def fish(command: Command) -> str:
    """Return the completion for fish."""
    lines = [f"# fish completion of {command.name}, made from its parser."]
    start = f"complete -c {command.name}"
    if not command.parts[0].takes_files:
        lines.append(f"{start} -f")
    seen = f"__fish_seen_subcommand_from {' '.join(command.words)}"
    for part in command.parts:
        condition = f" -n '__fish_seen_subcommand_from {part.word}'" if part.word else ""
        if not part.word and command.words:
            condition = f" -n 'not {seen}'"
        if part.word:
            lines.append(f"{start} -n 'not {seen}' -a {part.word} -d {_quoted(part.purpose)}")
        if part.word and part.takes_files:
            lines.append(f"{start}{condition} -F")
        for flag in part.flags:
            names = "".join(f" -l {name[2:]}" if name.startswith("--") else f" -s {name[1:]}" for name in flag.names)
            lines.append(f"{start}{condition}{names}{_fish_value(flag)} -d {_quoted(flag.help)}")
    return "\n".join(lines) + "\n"


def _fish_value(flag: Argument) -> str:
    if flag.choices:
        return f" -x -a {_quoted(' '.join(flag.choices))}"
    return "" if not flag.value else " -r -F" if flag.files else " -x"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
