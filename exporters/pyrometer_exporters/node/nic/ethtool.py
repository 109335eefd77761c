"""Read driver statistics by the ioctl SIOCETHTOOL (include/uapi/linux/ethtool.h); no root needed.

Three calls return the number of statistics, their names (32 bytes each) and their values (64 bits each). Names are
cached while their number is the same: a reloaded driver, or one with other queues, has another number.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import socket
import struct
from collections.abc import Mapping

SIOCETHTOOL = 0x8946
GSTRINGS, GSTATS, GSSET_INFO = 0x1B, 0x1D, 0x37
SS_STATS = 1
NAME_BYTES = 32
# mlx5 has 6,500 on a host with many queues; a larger number is not a driver's answer.
MAX_STATISTICS = 65_536


class Statistics:
    """Driver statistics of interfaces; not thread-safe: create one per device."""

    def __init__(self) -> None:
        super().__init__()
        self._names: dict[str, tuple[str, ...]] = {}

    def statistics(self, interface: str) -> Mapping[str, int]:
        """Return the statistics of ``interface`` by name.

        Raises:
            OSError: the driver has none (EOPNOTSUPP), or the interface is gone (ENODEV).
        """
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as handle:
            count = _count(handle, interface)
            names = self._names.get(interface, ())
            if len(names) != count:
                names = self._names[interface] = _read_names(handle, interface, count)
            values = _read_values(handle, interface, count)
        return dict(zip(names, values, strict=True))


def _call(handle: socket.socket, interface: str, buffer: ctypes.Array[ctypes.c_char]) -> None:
    request = struct.pack("16sP16x", interface.encode()[:15], ctypes.addressof(buffer))
    fcntl.ioctl(handle, SIOCETHTOOL, request)


def _count(handle: socket.socket, interface: str) -> int:
    # struct ethtool_sset_info: command, reserved, mask of the sets asked for, one count for each that exists.
    buffer = ctypes.create_string_buffer(struct.pack("=IIQI", GSSET_INFO, 0, 1 << SS_STATS, 0), 24)
    _call(handle, interface, buffer)
    _, _, mask, count = struct.unpack_from("=IIQI", buffer)
    if not mask or not 0 < count <= MAX_STATISTICS:
        raise OSError(errno.EOPNOTSUPP, "no statistics")
    return int(count)


def _read_names(handle: socket.socket, interface: str, count: int) -> tuple[str, ...]:
    # The kernel writes as many as exist by now: leave room for twice as many.
    buffer = ctypes.create_string_buffer(12 + 2 * count * NAME_BYTES)
    struct.pack_into("=III", buffer, 0, GSTRINGS, SS_STATS, count)
    _call(handle, interface, buffer)
    _check(struct.unpack_from("=III", buffer)[2], count)
    texts = (buffer.raw[12 + NAME_BYTES * n : 12 + NAME_BYTES * (n + 1)] for n in range(count))
    return tuple(text.partition(b"\0")[0].decode("utf-8", "replace").strip() for text in texts)


def _read_values(handle: socket.socket, interface: str, count: int) -> tuple[int, ...]:
    buffer = ctypes.create_string_buffer(8 + 2 * count * 8)
    struct.pack_into("=II", buffer, 0, GSTATS, count)
    _call(handle, interface, buffer)
    _check(struct.unpack_from("=II", buffer)[1], count)
    return struct.unpack_from(f"={count}Q", buffer, 8)


def _check(count: int, expected: int) -> None:
    if count != expected:  # queues were added or removed in between: the next read asks again
        raise OSError(errno.EAGAIN, "the statistics changed while they were read")
