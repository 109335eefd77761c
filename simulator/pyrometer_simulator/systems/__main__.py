"""`python -m pyrometer_simulator.systems`: try the commands on other systems, and write the table."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyrometer_simulator.engine.daemon import Docker, EngineError, check, engine
from pyrometer_simulator.stack.cache import cache_folder
from pyrometer_simulator.stack.errors import StackError
from pyrometer_simulator.systems import images, releases, table, trials
from pyrometer_simulator.systems.profiles import PROFILES, USERS
from pyrometer_simulator.systems.releases import RELEASES, SIMULATED, Release
from pyrometer_simulator.systems.trials import COMMANDS, Place, Plan, Result


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
            raise StackError("only root can install other systems: sudo make test-systems")
        releases.require_tools()
        check()
        return _try_all(chosen, plan, flags)
    except (StackError, EngineError) as error:
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
        "--folder", type=Path, metavar="DIR", help="for systems and logs (default: beside the stack's cache)"
    )
    parser.add_argument(
        "--write", type=Path, metavar="PAGE", help="put the results into this page's table, where others stay"
    )
    return parser


def _try_all(chosen: Sequence[Release], plan: Plan, flags: argparse.Namespace) -> int:
    folder = flags.folder or cache_folder().with_name("systems")
    with (
        tempfile.TemporaryDirectory(prefix="pym-") as scratch,
        engine(Path(scratch), [], _say, bridge=False) as docker,
        ThreadPoolExecutor(flags.jobs) as pool,
    ):
        trials_of = pool.map(lambda release: list(_trials(release, plan, docker, folder)), chosen)
        done = [result for results in trials_of for result in results]
    print(table.render(done))
    print(f"logs: {folder / 'logs'}")
    if flags.write is not None:
        table.write(done, flags.write)
    return 1 if any(_is_bad(result) for result in done) else 0


def _trials(release: Release, plan: Plan, docker: Docker, folder: Path) -> Iterator[Result]:
    """Yield the results on one system, or on what is simulated in its place where its archive is out of reach."""
    if not (folder / release.suite).is_dir() and not releases.is_reachable(release):
        yield from plan.not_run(release.name, "archive not reachable")
        if release.name in SIMULATED:
            yield from _trials(SIMULATED[release.name], plan, docker, folder)
        return
    try:
        image = images.build(docker, release, folder, _say)
    except (StackError, EngineError) as error:
        _say(f"{release.name}: {error}")
        yield from plan.not_run(release.name, str(error))
        return
    yield from trials.run_all(release, Place(docker, image, folder), plan, _say)
    if not docker.ours:
        docker.run("image", "rm", image)


def _is_bad(result: Result) -> bool:
    """Return whether a result fails the whole: all but an Ubuntu that can't be installed from here."""
    unreachable = result.note == "archive not reachable" and result.system.startswith("Ubuntu")
    return result.outcome == "failed" or (result.outcome == "not run" and not unreachable)


def _say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} systems: {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
