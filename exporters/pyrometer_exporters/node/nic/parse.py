"""Parse what sysfs writes about links. Each parser takes any text; unknown is None (or empty), never a guess."""

from __future__ import annotations

import re

# include/rdma/ib_verbs.h, enum ib_port_state and the phys_state names of drivers/infiniband/core/sysfs.c
STATE_ACTIVE = 4
STATE_ACTIVE_DEFER = 5
PHYS_DISABLED = 3
# include/uapi/linux/if.h
IFF_UP = 0x1
# The digits of the largest 64-bit number.
_MAX_DIGITS = 20

_CODE = re.compile(r"\s*(\d{1,9})\s*:", re.ASCII)
_RATE = re.compile(r"\s*(\d{1,9})(?:\.(\d{1,9}))?\s*Gb/sec\b", re.ASCII)
_FLAGS = re.compile(r"\s*0[xX]([0-9a-fA-F]{1,8})\s*", re.ASCII)
_HEXADECIMAL = re.compile(r"\s*0[xX]([0-9a-fA-F]{1,16})\s*", re.ASCII)
_GUID = re.compile(r"\s*([0-9a-fA-F]{4}(?::[0-9a-fA-F]{4}){3})\s*", re.ASCII)
_GID = re.compile(r"\s*(?:[0-9a-fA-F]{4}:){4}([0-9a-fA-F]{4}(?::[0-9a-fA-F]{4}){3})\s*", re.ASCII)
_PCI_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.ASCII)
_ZERO_GUID = "0000:0000:0000:0000"


def code(text: str) -> int | None:
    """Parse the number of ``4: ACTIVE``; the name after it differs between drivers and is never needed.

    >>> code("7: Phy Test")
    7
    """
    match = _CODE.match(text)
    return int(match[1]) if match else None


def number(text: str | bytes) -> int | None:
    """Parse a counter such as ``42``; None for ``N/A (no PMA)``, a negative number or more digits than 64 bits have.

    >>> number("N/A (no PMA)") is None
    True
    """
    digits = text.strip()
    # Python's isdigit accepts more than ASCII digits.
    return int(digits) if digits.isdigit() and digits.isascii() and len(digits) <= _MAX_DIGITS else None


def setting(text: str) -> int | None:
    """Parse a number such as ``1500`` or ``0x1003``.

    >>> setting("0x20")
    32
    """
    match = _HEXADECIMAL.fullmatch(text)
    return int(match[1], 16) if match else number(text)


def rate(text: str) -> int | None:
    """Parse ``400 Gb/sec (4X NDR)`` into bits per second, exactly.

    >>> rate("2.5 Gb/sec (1X SDR)")
    2500000000
    """
    match = _RATE.match(text)
    # In whole numbers: a 32-bit float would lose digits of 2.5e9.
    return int(match[1]) * 1_000_000_000 + int((match[2] or "").ljust(9, "0")) if match else None


def speed(text: str) -> int | None:
    """Parse an interface's ``400000`` (Mb/s) into bits per second; None for ``-1``, which means unknown, and for 0."""
    megabits = number(text)
    # 32 bits; SPEED_UNKNOWN is -1, which some drivers print unsigned.
    return megabits * 1_000_000 if megabits and megabits < 0xFFFFFFFF else None


def admin_up(text: str) -> bool | None:
    """Return whether an interface's flags, such as ``0x1003``, include IFF_UP; None where they can't be parsed."""
    match = _FLAGS.fullmatch(text)
    return bool(int(match[1], 16) & IFF_UP) if match else None


def guid(text: str) -> str:
    """Parse a GUID such as ``506b:4b03:005f:a1e2`` into lower case; empty for all zeros or anything else."""
    match = _GUID.fullmatch(text)
    return _real(match[1].lower()) if match else ""


def gid_guid(text: str) -> str:
    """Parse the port GUID, the second half of the port's first GID ``fe80:0000:0000:0000:506b:4b03:005f:a1e2``."""
    match = _GID.fullmatch(text)
    return _real(match[1].lower()) if match else ""


def pci_address(path: str) -> str:
    """Return the last PCI address in a device's path: its own, or its function's; empty if there is none.

    >>> pci_address("/sys/devices/pci0000:00/0000:00:03.0/virtio2")
    '0000:00:03.0'
    """
    addresses = _PCI_ADDRESS.findall(path.lower())
    return addresses[-1] if addresses else ""


def _real(guid_text: str) -> str:
    return "" if guid_text == _ZERO_GUID else guid_text
