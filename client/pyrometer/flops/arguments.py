"""Numbers on a command line, refused in one line where no model, job or GPU has them."""

from __future__ import annotations

import argparse
import math


def positive(text: str) -> float:
    """A number above zero."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is no number above zero")
    return value


def positive_int(text: str) -> int:
    """A whole number above zero that a machine word holds."""
    value = int(text) if text.isdecimal() and len(text) < 19 else 0
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text} is no whole number above zero")
    return value


def ratio(text: str) -> float:
    """A number above 0, at most 1."""
    value = positive(text)
    if value > 1:
        raise argparse.ArgumentTypeError(f"{text} is above 1: 40 % is 0.4")
    return value
