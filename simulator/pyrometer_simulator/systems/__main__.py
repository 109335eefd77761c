"""`python -m pyrometer_simulator.systems`: try the commands on other systems, and write the table."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from pyrometer_simulator.stack.cache import cache_folder
from pyrometer_simulator.stack.errors import StackError
from pyrometer_simulator.systems import chroots, releases, table, trials
from pyrometer_simulator.systems.chroots import USERS
from pyrometer_simulator.systems.profiles import PROFILES
from pyrometer_simulator.systems.releases import RELEASES, SIMULATED, Release
from pyrometer_simulator.systems.trials import COMMANDS, Plan, Result, ResultBook


def main(argv: Sequence[str] | None = None) -> int:
    """Run the trials: 0 if all went well, 1 if one failed, 2 with one line if they can't run here."""
    flags = _parser().parse_args(argv)
    plan = Plan(
        flags.user or list(USERS),
        [profile for profile in PROFILES if profile.name in (flags.profile or [profile.name])],
        flags.command or ["demo", "smoke"],
        flags.reuse,
    )
    chosen = [release for release in RELEASES if release.suite in (flags.system or [release.suite])]
    try:
        if os.geteuid() != 0:
            raise StackError("only root can build and enter chroots: sudo make test-systems")
        releases.require_tools()
        return _try_all(chosen, plan, flags)
    except StackError as error:
        print(f"systems: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m pyrometer_simulator.systems", allow_abbrev=False)
    choices = {
        "system": [release.suite for release in RELEASES], "user": list(USERS),
        "profile": [profile.name for profile in PROFILES], "command": list(COMMANDS),
    }  # fmt: skip
    for name, values in choices.items():
        default = "demo and smoke" if name == "command" else "all"
        parser.add_argument(
            f"--{name}", action="append", choices=values, help=f"only this {name}; repeatable (default: {default})"
        )
    parser.add_argument("--reuse", action="store_true", help="set up once per user instead of once per profile")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="systems at the same time (default: 1)")
    parser.add_argument(
        "--folder", type=Path, metavar="DIR", help="for chroots and logs (default: beside the stack's cache)"
    )
    parser.add_argument(
        "--write", type=Path, metavar="PAGE", help="put all results so far into this page's table, where others stay"
    )
    return parser


def _try_all(chosen: Sequence[Release], plan: Plan, flags: argparse.Namespace) -> int:
    folder = flags.folder or cache_folder().with_name("systems")
    book = ResultBook(folder / "results.json")
    with ThreadPoolExecutor(flags.jobs) as pool:
        done = [result for results in pool.map(partial(_try, plan, folder, book), chosen) for result in results]
    print(table.render(done))
    print(f"logs: {folder / 'logs'}")
    if flags.write is not None:
        table.write(book.load(), flags.write)
    return 1 if any(_is_bad(result) for result in done) else 0


def _try(plan: Plan, folder: Path, book: ResultBook, release: Release) -> list[Result]:
    """Return the results on one system, or on what is simulated in its place where its archive is out of reach."""
    done = []
    for result in _trials(release, plan, folder):
        book.add(result)
        done.append(result)
    return done


def _trials(release: Release, plan: Plan, folder: Path) -> Iterator[Result]:
    if not (folder / release.suite).is_dir() and not releases.is_reachable(release):
        yield from plan.not_run(release.name, "archive not reachable")
        if release.name in SIMULATED:
            yield from _trials(SIMULATED[release.name], plan, folder)
        return
    try:
        root = chroots.build(release, folder, _say)
    except StackError as error:
        _say(f"{release.name}: {error}")
        yield from plan.not_run(release.name, str(error))
        return
    yield from trials.run_all(release, root, plan, folder / "logs", _say)


def _is_bad(result: Result) -> bool:
    """Return whether a result fails the whole: all but an Ubuntu that can't be installed from here."""
    unreachable = result.note == "archive not reachable" and result.system.startswith("Ubuntu")
    return result.outcome == "failed" or (result.outcome == "not run" and not unreachable)


def _say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} systems: {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
