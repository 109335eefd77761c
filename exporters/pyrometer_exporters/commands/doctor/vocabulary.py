"""List the words that our own programs can say: of their texts and names, of NVIDIA's library, of the system's errors.

A field report lets no other word out. Comments and docstrings don't count: their examples name people and runs.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import functools
import os
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import CodeType

_MODULES = ("pyrometer_exporters", "pyrometer_kit", "pyrometer.ring", "pynvml")
# Names of distributions and kernels; a site's own kernel may have the site's name.
_SYSTEMS = """
    aarch64 almalinux alpine amazon amd64 arm64 aws azure azl bookworm bottlerocket bullseye cbl centos cloud cloudimg
    core coreos cos debian default deb el enterprise fedora fc flatcar gcp generic gke glibc hat jammy leap linux
    lowlatency lts mariner microsoft musl noble numbat opensuse oracle photon platform ppc64le red rhel rocky rt server
    sles smp stream suse talos tegra trixie ubuntu uek virtual wsl2 x86
    clang cpython crw gcc gnu nan inf pypy vmlinux
"""
WORD = re.compile(r"[^\W_]+")


@functools.lru_cache(maxsize=1)
def vocabulary() -> frozenset[str]:
    """Return the words, in lower case; those of the systems alone where the programs' text is not installed."""
    words = set(_SYSTEMS.split())
    for text in (*map(os.strerror, errno.errorcode), *errno.errorcode.values(), *vars(builtins), *_said_by_us()):
        words.update(WORD.findall(text.lower()))
    return frozenset(words)


def _said_by_us() -> Iterator[str]:
    for path in _sources():
        yield path.stem
        with contextlib.suppress(OSError, ValueError, SyntaxError):
            yield from _said(compile(path.read_bytes(), str(path), "exec", dont_inherit=True, optimize=2))


def _sources() -> Iterator[Path]:
    for name in _MODULES:
        spec = find_spec(name)
        if spec is not None and spec.submodule_search_locations:
            for folder in spec.submodule_search_locations:
                yield from Path(folder).rglob("*.py")
        elif spec is not None and spec.origin:
            yield Path(spec.origin)


def _said(code: CodeType) -> Iterator[str]:
    """Yield the texts and names of a module, which is compiled without docstrings."""
    yield from (*code.co_names, *code.co_varnames)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant.co_name
            yield from _said(constant)
        else:
            yield from _texts(constant)


def _texts(constant: object) -> Iterator[str]:
    if isinstance(constant, str):
        yield constant
    elif isinstance(constant, (tuple, frozenset)):
        for part in constant:
            yield from _texts(part)
