"""The filter of system calls, asked by a process that has installed it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from pyrometer_simulator.systems import seccomp

pytestmark = [
    pytest.mark.skipif(not seccomp.SUPPORTED, reason="the filter is of x86_64"),
    pytest.mark.usefixtures("whole_root"),
]

ASK = """
import ctypes, json, os, subprocess, sys
from pyrometer_simulator.systems import seccomp
seccomp.install()
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    ctypes.set_errno(0)
    libc.syscall(number, *arguments)
    return os.strerror(ctypes.get_errno())
print(json.dumps({
    "unshare": call(272, 0x10000000),
    "mount": call(165, b"x", b"/mnt", b"tmpfs", 0, None),
    "clone, new user namespace": call(56, 0x10000000 | 17, 0, 0, 0, 0),
    "clone3": call(435, None, 0),
    "getpid": call(39),
    "a program": subprocess.run([sys.executable, "-c", "import threading; threading.Thread().start()"]).returncode,
}))
"""


def test_what_a_container_engine_forbids_is_refused_and_all_else_works() -> None:
    answer = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=True)
    assert json.loads(answer.stdout) == {
        "unshare": "Operation not permitted",
        "mount": "Operation not permitted",
        "clone, new user namespace": "Operation not permitted",
        "clone3": "Function not implemented",
        "getpid": "Success",
        "a program": 0,
    }
