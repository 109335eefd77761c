"""Build the .deb and the .rpm of the exporters, for amd64 and arm64, into dist: ``make packages``.

    python -m tools.packages dist [--format deb] [--arch amd64]

The package has its libraries with it, in the versions and with the hashes of compose/requirements/exporters.txt, and
runs on any Python from 3.10 on: bcrypt has one file for all of them, and of PyYAML and charset-normalizer the parts in
C, which are optional, are left out.
"""

from __future__ import annotations

import argparse
import gzip
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools import chart, command_files

ROOT = Path(__file__).resolve().parents[1]
VERSION = (ROOT / "VERSION").read_text(encoding="utf-8").strip()
FORMATS = ("deb", "rpm")
# The machines, by Debian's name, with the name that wheels have.
ARCHITECTURES: Mapping[str, str] = {"amd64": "x86_64", "arm64": "aarch64"}
COMMANDS = (
    "pyrometer-bisect", "pyrometer-check", "pyrometer-cluster-exporter", "pyrometer-doctor", "pyrometer-follow",
    "pyrometer-hang", "pyrometer-node-exporter", "pyrometer-targets", "pyrometer-test",
)  # fmt: skip
PARTS = ("kit", "client", "exporters")
UNITS = ("pyrometer-node-exporter.service", "pyrometer-cluster-exporter.service")
_PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")


def wheels(into: Path) -> list[Path]:
    """Build our own wheels; return their paths."""
    _run(
        *_PIP, "wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", str(into), *(f"./{part}" for part in PARTS)
    )
    return sorted(into.glob("*.whl"))


def stage(into: Path, ours: Sequence[Path], machine: str) -> None:
    """Lay out the package's files below a folder, for a machine by its name in wheels."""
    library = into / "opt/pyrometer/lib"
    platforms = [f"--platform={name}_{machine}" for name in ("manylinux2014", "manylinux_2_28")]
    requirements = ROOT / "compose/requirements/exporters.txt"
    fixed = ["--only-binary=:all:", "--python-version=3.10", f"--target={library}", "--no-deps", "--no-compile"]
    _run(*_PIP, "install", *fixed, *platforms, "--require-hashes", "--requirement", str(requirements))
    _run(*_PIP, "install", *fixed[:3], "--no-deps", "--no-compile", "--no-index", "--upgrade", *map(str, ours))
    # Others brought along: the compiled parts of PyYAML and charset-normalizer, scripts, an example, tests.
    left_out = ("yaml/_yaml*.so", "charset_normalizer/*.so", "*__mypyc*.so", "bin", "example.py", "*/tests")
    for path in (path for pattern in left_out for path in library.glob(pattern)):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in library.rglob("*.so"):
        if ".abi3." not in path.name:
            raise SystemExit(f"packages: {path.name} is for one version of Python only")
    shutil.copy(ROOT / "compose/packages/start.py", library / "start.py")
    _commands(into)
    _system(into / "usr")


def _commands(into: Path) -> None:
    programs = into / "opt/pyrometer/bin"
    programs.mkdir()
    links = into / "usr/bin"
    links.mkdir(parents=True)
    for name in COMMANDS:
        shutil.copy(ROOT / "compose/packages/launcher.sh", programs / name)
        (programs / name).chmod(0o755)
        (links / name).symlink_to(f"../../opt/pyrometer/bin/{name}")
    (into / "zsh").mkdir()
    for name, text in command_files.files(COMMANDS).items():
        path = into / "zsh" / Path(name).name if name.startswith("zsh/") else into / "usr/share" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        if "/man1/" in name:
            _compress(path)


def _system(usr: Path) -> None:
    for name in UNITS:
        _copy(ROOT / "compose/systemd" / name, usr / "lib/systemd/system" / name)
    _copy(ROOT / "compose/systemd/pyrometer.sysusers.conf", usr / "lib/sysusers.d/pyrometer.conf")
    _copy(ROOT / "compose/systemd/pyrometer.tmpfiles.conf", usr / "lib/tmpfiles.d/pyrometer.conf")
    documents = usr / "share/doc/pyrometer-exporters"
    _copy(ROOT / "LICENSE", documents / "copyright")
    _copy(ROOT / "CHANGELOG.md", documents / "changelog")
    _compress(documents / "changelog")


def _copy(source: Path, into: Path) -> None:
    into.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, into)


def _compress(path: Path) -> None:
    path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))
    path.unlink()


def build(into: Path, formats: Sequence[str], architectures: Sequence[str]) -> list[Path]:
    """Build the packages; return their paths.

    Raises:
        SystemExit: nfpm is missing, or a step failed; it said why.
    """
    nfpm = chart.program("nfpm")
    if nfpm is None:
        raise SystemExit("packages: no nfpm: `make chart-programs` builds it, or install nfpm 2.40 or newer")
    into.mkdir(parents=True, exist_ok=True)
    os.umask(0o022)  # everybody may read what is installed
    found = []
    with tempfile.TemporaryDirectory() as scratch:
        ours = wheels(Path(scratch) / "wheels")
        for architecture in architectures:
            staged = Path(scratch) / architecture
            stage(staged, ours, ARCHITECTURES[architecture])
            environment = {**os.environ, "STAGE": str(staged), "ARCH": architecture, "VERSION": VERSION}
            for form in formats:
                target = into / file_name(form, architecture)
                command = [
                    nfpm,
                    "package",
                    "--config=compose/packages/nfpm.yaml",
                    f"--packager={form}",
                    f"--target={target}",
                ]
                subprocess.run(command, cwd=ROOT, env=environment, check=True)
                found.append(target)
    return found


def file_name(form: str, architecture: str) -> str:
    """Return a package's file name, as each of the two worlds has it."""
    if form == "deb":
        return f"pyrometer-exporters_{VERSION}_{architecture}.deb"
    return f"pyrometer-exporters-{VERSION}-1.{ARCHITECTURES[architecture]}.rpm"


def _run(*command: str) -> None:
    if subprocess.run(command, cwd=ROOT, check=False).returncode:
        raise SystemExit("packages: the command above failed")


def main(arguments: Sequence[str] | None = None) -> int:
    """Build what was asked for; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.packages", description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--format", action="append", choices=FORMATS, help="default: both")
    parser.add_argument("--arch", action="append", choices=tuple(ARCHITECTURES), help="default: both")
    flags = parser.parse_args(arguments)
    for path in build(flags.folder.resolve(), flags.format or FORMATS, flags.arch or tuple(ARCHITECTURES)):
        sys.stdout.write(f"{path}  {path.stat().st_size:,} bytes\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
