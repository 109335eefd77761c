"""Query link state and FEC by ethtool's generic netlink (include/uapi/linux/ethtool_netlink.h).

One request, one reply. The link state holds two values that no file of sysfs has: the reason why a link is down, and
how often the physical link was lost, in 32 bits that don't stay at 255.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

NETLINK_GENERIC = 16
NLM_F_REQUEST, NLMSG_ERROR, GENL_ID_CTRL = 0x1, 0x2, 0x10
CTRL_GETFAMILY, CTRL_FAMILY_ID, CTRL_FAMILY_NAME = 3, 1, 2
NESTED, TYPE_MASK = 0x8000, 0x3FFF
LINKSTATE_GET, FEC_GET = 6, 29
HEADER, HEADER_DEV_NAME, HEADER_FLAGS, FLAG_STATS = 1, 2, 3, 4
LINKSTATE_EXT_STATE, LINKSTATE_EXT_DOWN_CNT = 5, 7
FEC_ACTIVE, FEC_STATS, FEC_CORRECTED, FEC_UNCORRECTABLE = 4, 5, 2, 3
# enum ethtool_link_ext_state
REASONS = (
    "autonegotiation", "link_training_failure", "link_logical_mismatch", "bad_signal_integrity", "no_cable",
    "cable_issue", "eeprom_issue", "calibration_failure", "power_budget_exceeded", "overheat", "module",
)  # fmt: skip
# ETHTOOL_LINK_MODE_FEC_*_BIT
FEC_MODES = {49: "off", 50: "rs", 51: "baser", 74: "llrs"}
# The kernel replies at once, but waits for the RTNL lock first (node_exporter issue 1841: more than 5 s).
TIMEOUT_SECONDS = 2.0
_HEADER, _GENERIC, _ATTRIBUTE = struct.Struct("=IHHII"), struct.Struct("=BBH"), struct.Struct("=HH")

Attributes = dict[int, bytes]


@dataclass(frozen=True)
class LinkState:
    """The state of a link, from ``ETHTOOL_MSG_LINKSTATE_GET``.

    Attributes:
        reason: why the link is down, such as ``no_cable``; empty where it is up or the driver doesn't report a reason.
        downs: how often the physical link went down, 32 bits; None where the driver doesn't count.
    """

    reason: str = ""
    downs: int | None = None


@dataclass(frozen=True)
class Fec:
    """Forward error correction: its mode (``rs``, ``baser``, ``llrs``, ``off``) and blocks since the driver started."""

    mode: str = ""
    corrected: int | None = None
    uncorrectable: int | None = None


class EthtoolNetlink:
    """A netlink client that opens one socket per question, as questions are minutes apart."""

    def __init__(self) -> None:
        self._family = 0

    def link_state(self, interface: str) -> LinkState:
        """Query the link state of ``interface``; raises ``OSError`` where the kernel has no answer."""
        reply = self._ask(LINKSTATE_GET, interface)
        state = reply.get(LINKSTATE_EXT_STATE, b"")
        downs = reply.get(LINKSTATE_EXT_DOWN_CNT, b"")
        reason = REASONS[state[0]] if state and state[0] < len(REASONS) else ""
        return LinkState(reason, number(downs) if downs else None)

    def fec(self, interface: str) -> Fec:
        """Query the FEC mode and counters of ``interface``; raises ``OSError`` where the kernel has no answer."""
        reply = self._ask(FEC_GET, interface)
        counts = dict(attributes(reply.get(FEC_STATS, b"")))
        corrected, uncorrectable = counts.get(FEC_CORRECTED, b""), counts.get(FEC_UNCORRECTABLE, b"")
        # Arrays: the first is the total, those of the lanes follow.
        return Fec(
            FEC_MODES.get(number(reply.get(FEC_ACTIVE, b"")), ""),
            number(corrected[:8]) if corrected else None,
            number(uncorrectable[:8]) if uncorrectable else None,
        )

    def _ask(self, command: int, interface: str) -> Attributes:
        name = attribute(HEADER_DEV_NAME, interface.encode() + b"\0")
        header = attribute(HEADER | NESTED, name + attribute(HEADER_FLAGS, struct.pack("=I", FLAG_STATS)))
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_GENERIC) as handle:
            handle.settimeout(TIMEOUT_SECONDS)
            if not self._family:
                asked = attribute(CTRL_FAMILY_NAME, b"ethtool\0")
                self._family = number(_exchange(handle, GENL_ID_CTRL, CTRL_GETFAMILY, asked)[CTRL_FAMILY_ID])
            return _exchange(handle, self._family, command, header)


def attribute(kind: int, value: bytes) -> bytes:
    """Encode one attribute: length, kind, value, padded to 4 bytes."""
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value + bytes(-len(value) % 4)


def attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the attributes of a message up to the first that is cut off or has an impossible length."""
    at = 0
    while at + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, at)
        if length < _ATTRIBUTE.size or at + length > len(data):
            return
        yield kind & TYPE_MASK, data[at + _ATTRIBUTE.size : at + length]
        at += length + (-length % 4)


def number(value: bytes) -> int:
    """Decode an unsigned number in the machine's byte order; 0 for no bytes."""
    return int.from_bytes(value, "little" if struct.pack("=H", 1)[0] else "big")


def answer(message: bytes) -> Attributes:
    """Decode the attributes of a reply; raises ``OSError`` for an error message or a truncated one."""
    if len(message) < _HEADER.size + _GENERIC.size:
        raise OSError(errno.EBADMSG, "truncated reply")
    _, kind, _, _, _ = _HEADER.unpack_from(message)
    if kind == NLMSG_ERROR:
        (code,) = struct.unpack_from("=i", message, _HEADER.size)
        raise OSError(-code, os.strerror(-code))
    return dict(attributes(message[_HEADER.size + _GENERIC.size :]))


def _exchange(handle: socket.socket, family: int, command: int, payload: bytes) -> Attributes:
    size = _HEADER.size + _GENERIC.size + len(payload)
    handle.send(_HEADER.pack(size, family, NLM_F_REQUEST, 1, 0) + _GENERIC.pack(command, 1, 0) + payload)
    return answer(handle.recv(65_536))
