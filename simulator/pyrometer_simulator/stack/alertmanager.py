"""Alertmanager from Debian's package, run from wherever it was unpacked: no root, no namespace, no fixed path.

Debian compiles the path of its template folder into the binary, and Alertmanager does not start without the templates
there. `relocate` writes a copy of the binary in which that path reads `/proc/self/fd/9`, padded to the same length, and
`start_command` opens the unpacked folder as descriptor 9 before it starts that copy.
"""

import os
import re
from pathlib import Path

from pyrometer_simulator.stack.errors import INSTALL_HINT, StackError

PACKAGE = "prometheus-alertmanager"
DEBIAN_FOLDER = b"/usr/share/prometheus/alertmanager"
DESCRIPTOR = 9

# exec all the way, so that a signal to the process that was started reaches Alertmanager itself.
_OPEN_FOLDER = f'exec {DESCRIPTOR}<"$1"; shift; exec "$@"'


def start_command(unpacked: Path) -> tuple[str, ...]:
    """Return the beginning of an argument list that starts the relocated Alertmanager below `unpacked`."""
    folder = unpacked / DEBIAN_FOLDER.decode().lstrip("/")
    return ("sh", "-c", _OPEN_FOLDER, "sh", str(folder), str(relocated(unpacked)))


def relocated(unpacked: Path) -> Path:
    """Return the path of the relocated copy of the binary below an unpacked package."""
    return unpacked / "relocated" / PACKAGE


def relocate(unpacked: Path) -> None:
    """Write the relocated copy of an unpacked package's binary, complete or not at all, unless it exists.

    Raises:
        StackError: the binary doesn't name its template folder as expected, or the copy can't be written.
    """
    target = relocated(unpacked)
    if target.exists():
        return
    scratch = target.with_name(f".{PACKAGE}-{os.getpid()}")
    try:
        binary = replace_folder((unpacked / "usr/bin" / PACKAGE).read_bytes())
        target.parent.mkdir(exist_ok=True)
        scratch.write_bytes(binary)
        scratch.chmod(0o755)
        scratch.rename(target)
    except OSError as error:
        scratch.unlink(missing_ok=True)
        reason = error.strerror or str(error)
        raise StackError(f"cannot write {target}: {reason}; set XDG_CACHE_HOME to a folder of yours") from None


def replace_folder(binary: bytes) -> bytes:
    """Return the bytes of a binary with Debian's template folder replaced by the descriptor's path of equal length.

    The folder must be a constant of its own exactly once: Go stores its constants one after the other, so an occurrence
    followed by a slash is the beginning of a longer path, such as that of the web pages, and is replaced as well.

    Raises:
        StackError: the constant is absent, or not the only one.
    """
    constants = re.findall(re.escape(DEBIAN_FOLDER) + rb"(?!/)", binary)
    if len(constants) != 1:
        raise StackError(
            f"this build of Debian's Alertmanager names its template folder {len(constants)} times instead of once and "
            f"can't be run outside /usr: {INSTALL_HINT}"
        )
    return binary.replace(DEBIAN_FOLDER, _padded(f"/proc/self/fd/{DESCRIPTOR}".encode(), len(DEBIAN_FOLDER)))


def _padded(path: bytes, length: int) -> bytes:
    """Return `path` with as many `/.` and at last a slash that it has `length` bytes; it leads to the same folder."""
    missing = length - len(path)
    return path + b"/." * (missing // 2) + b"/" * (missing % 2)
