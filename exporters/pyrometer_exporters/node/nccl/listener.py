"""Whose program answers at a local address: the owner of the other end of a connection, as the kernel lists it.

A line of ``/proc/net/tcp``; addresses are words of 32 bits in the machine's byte order::

      sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
      12: 0100007F:6D7C 0100007F:A3C2 01 00000000:00000000 00:00000000 00000000  1000        0 123456 1 ...
"""

from __future__ import annotations

import contextlib
import socket
import struct
from pathlib import Path

_UID_FIELD = 7


def owner_of_peer(procfs: Path, connection: socket.socket) -> int | None:
    """Return the user whose process has taken a connection's other end; None where that is on another machine.

    To be asked once the other end has answered: before that, the kernel gives no owner.
    """
    if connection.family not in (socket.AF_INET, socket.AF_INET6):
        return None
    theirs, ours = _ends(connection.getpeername()), _ends(connection.getsockname())
    wanted = [f" {local} {remote} " for local, remote in zip(theirs, ours, strict=True)]
    for name in ("net/tcp", "net/tcp6"):
        with contextlib.suppress(OSError), (procfs / name).open(encoding="ascii", errors="replace") as lines:
            for line in lines:
                if any(ends in line for ends in wanted):
                    fields = line.split()
                    if len(fields) > _UID_FIELD and fields[_UID_FIELD].isdecimal():
                        return int(fields[_UID_FIELD])
    return None


def _ends(name: tuple[str, int]) -> list[str]:
    """Return an address as the kernel writes it for IPv4, and for IPv6: a program that takes both has the latter."""
    host, port = name[:2]
    if ":" not in host:
        packed = socket.inet_pton(socket.AF_INET, host)
        return [_written(packed, port), _written(b"\0" * 10 + b"\xff\xff" + packed, port)]
    packed = socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
    return [_written(packed[12:], port), _written(packed, port)]


def _written(packed: bytes, port: int) -> str:
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words) + f":{port:04X}"
