"""Man pages and completions have every flag of every command, and the shells take them."""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tools import command_files, reference

NAMES = [script.name for script in reference.commands()]


def completed(tmp_path: Path, *words: str) -> list[str]:
    """Return the words that bash offers for the last of these, --flag=value as its three words."""
    (tmp_path / "completion").write_text(command_files.bash(command_files.parser(words[0])), encoding="utf-8")
    script = (
        'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1));'
        ' "_shtab_${1//-/_}_words"; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    command = ["bash", "-c", script, "bash", str(tmp_path / "completion"), *words]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert answer.stderr == ""
    return answer.stdout.split()


@pytest.mark.parametrize("name", NAMES)
def test_every_flag_of_every_command_is_in_all_four(name: str) -> None:
    texts = command_files.files([name])
    assert len(texts) == 4
    for action in command_files.actions(command_files.parser(name)):
        for flag in () if action.help == argparse.SUPPRESS else action.option_strings:
            for path, text in texts.items():
                if flag in ("-h", "--help") and "/man1/" in path:
                    continue  # among the options of its synopsis
                written = flag.replace("-", "\\-") if "/man1/" in path else flag
                if path.endswith(".fish"):
                    written = f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}"
                assert written in text, path


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("shell", "flags", "path"), [
    ("bash", "-n", "bash-completion/completions/{}"), ("zsh", "-n", "zsh/site-functions/_{}"),
    ("fish", "--no-execute", "fish/vendor_completions.d/{}.fish"),
])  # fmt: skip
def test_each_shell_reads_its_completion(tmp_path: Path, name: str, shell: str, flags: str, path: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell}: apt-get install {shell}")
    (tmp_path / "file").write_text(command_files.files([name])[path.format(name)], encoding="utf-8")
    answer = subprocess.run([shell, flags, str(tmp_path / "file")], capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stderr) == (0, "")


@pytest.mark.parametrize(("words", "offered"), [
    (("pyrometer-node-exporter", "--log.level", ""), {"debug", "info", "warn", "error"}),
    (("pyrometer-node-exporter", "--log.level", "=", "d"), {"debug"}),
    (("pyrometer-node-exporter", "--no-collector.k"), {"--no-collector.kernel"}),
    (("pyrometer-alerting", "che"), {"check-config", "check-outlets", "check-slack"}),
    (("pyrometer-alerting", "check-slack", "--po"), {"--post", "--policy.file"}),
    (("pyrometer-alerting", "digest", "--w"), {"--weekly"}),
    (("pyrometer-dashboards", "rules", "--shard-n"), {"--shard-nodes"}),
    (("pyrometer-alerting", "--slack.channel", ""), set()),
])  # fmt: skip
def test_bash_completes_commands_flags_and_choices(tmp_path: Path, words: tuple[str, ...], offered: set[str]) -> None:
    assert set(completed(tmp_path, *words)) == offered


@pytest.mark.parametrize("name", NAMES)
def test_man_reads_every_page_without_a_warning(tmp_path: Path, name: str) -> None:
    if shutil.which("groff") is None:
        pytest.skip("no groff: apt-get install groff-base")
    page = tmp_path / f"{name}.1"
    page.write_text(command_files.files([name])[f"man/man1/{name}.1"], encoding="utf-8")
    # Not the warning that a line with a long address can't be adjusted.
    command = ["groff", "-man", "-Tutf8", "-ww", "-Wbreak", "-rLL=120n", str(page)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert answer.stderr == ""
    shown = " ".join(re.sub(r"\x1b\[[\d;]*m|.\x08", "", answer.stdout).split())
    assert f"{name} - " in shown
    assert all(heading in shown for heading in ("SYNOPSIS", "OPTIONS", "EXIT STATUS"))


def test_a_default_and_choices_are_in_the_page() -> None:
    page = command_files.man_page(command_files.parser("pyrometer-node-exporter"))
    assert "{debug,info,warn,error}" in page
    assert "(default: 127.0.0.1:9935)" in page


def test_no_command_is_a_clear_error() -> None:
    with pytest.raises(LookupError, match="no command pyrometer-nothing: known are pyrometer-alerting"):
        command_files.parser("pyrometer-nothing")
    assert command_files.main([]) == 2
