"""The one table of weights by which causes are ranked: logits that add up to the probability that a cause is true.

`KINDS` has, for each kind of fact, its family, its name in a message and its prior: how much the mere sight of such a
fact says. `FEATURES` has what its time, its extent, its strength and the other facts add or take. The figures are
fitted to generated incidents (`pyrometer_simulator.incidents.fit`, table in docs/diagnosis.md): no figure of the
ranking is anywhere else. Kinds and features that the incidents say nothing of keep the figure that the fit began with,
set by published practice: a lost GPU or link stops every rank; hardware slowdown and power brake cut clocks hardest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Kind:
    """One kind of fact: its family (what it does to a step), its name in a message, its prior as a logit."""

    family: str
    name: str
    prior: float
    pause: float = 60.0  # seconds after which another occurrence is a new one


KINDS: Mapping[str, Kind] = {
    "hw_thermal": Kind("throttle", "hardware thermal throttling", 0.47),
    "hw_power_brake": Kind("throttle", "power brake", 0.85),
    "hw_slowdown": Kind("throttle", "hardware slowdown", 0.44),
    "sw_thermal": Kind("throttle", "software thermal throttling", 0.54),
    "power_limit": Kind("throttle", "power limit lowered", 0.94),
    "clocks_setting": Kind("throttle", "clocks held down by a setting", 0.53),
    "power_cap": Kind("throttle", "held by the power cap", -0.2),
    "board_limit": Kind("throttle", "held by the board's limit", 0.2),
    "reliability": Kind("throttle", "held by the voltage limit", -0.5),
    "clock_low": Kind("clock", "low SM clock", 0.3),
    "link_flap": Kind("link", "link flapping", 0.91, 900.0),
    "link_down": Kind("link", "link down", 1.24, 0.0),
    "link_rate": Kind("link", "link below its rate", 0.58),
    "xid_fatal": Kind("xid", "Xid", 1.49, 3600.0),
    "xid": Kind("xid", "Xid", -0.61, 3600.0),
    "pcie_width": Kind("pcie", "PCIe link with fewer lanes than possible", 1.0),
    "oom_kill": Kind("host", "the kernel killed a process for lack of memory", 0.66, 600.0),
    "machine_check": Kind("host", "machine check (CPU or memory hardware)", 0.48, 600.0),
    "pcie_aer": Kind("host", "PCIe errors", -0.2, 600.0),
    "sxid": Kind("host", "NVSwitch error (SXid)", 0.96, 600.0),
    "nvme": Kind("host", "NVMe errors", -0.4, 600.0),
    "soft_lockup": Kind("host", "CPU soft lockup", 0.53, 600.0),
    "pressure": Kind("host", "pressure", -0.59),
    "least_wait": Kind("rank", "the other ranks wait for it", -0.58),
    "rank_silent": Kind("rank", "fell silent first", 1.12),
    "behind": Kind("rank", "behind in a collective", 1.2),
    "not_arrived": Kind("rank", "did not reach a collective", 1.2),
    "not_spinning": Kind("rank", "busy with something else while the others wait in a collective", 0.8),
    "data": Kind("data", "data loading", 1.31),
    "gc": Kind("gc", "garbage collection", 1.13),
    "checkpoint": Kind("checkpoint", "saving a checkpoint", 0.75),
    "eval": Kind("checkpoint", "evaluation", 0.5),
    "config": Kind("config", "the configuration changed", 1.2),
    "restart": Kind("config", "the run was restarted", -0.5),
    "tagged": Kind("config", "planned work", 0.8),
    "node_silent": Kind("silent", "fell silent", -2.0),
    "maintenance": Kind("host", "in maintenance", -1.0),
    "alert": Kind("gpu", "", 0.0, 1800.0),
    # Context that names no cause alone.
    "celsius": Kind("context", "", -9.0),
    "symptom": Kind("context", "", -9.0),
}

# Kinds of one family on one part are one cause, named after the first of these that it has; the rest is evidence.
NAMING = tuple(KINDS)

FEATURES: Mapping[str, float] = {
    "began_with_drop": 1.73,
    "began_before_drop": 1.33,
    "began_long_before_drop": -1.9,
    "began_after_drop": -4.03,
    "time_unknown": -0.02,
    "ended_before_drop": -5.91,
    "quiet_since_drop": -1.31,
    "ended_while_slow": -2.2,
    "strength": 1.14,  # times (strength - 0.5)
    "unlike_peers": 0.0,
    "like_peers": -1.81,
    "unlike_past": 0.0,
    "like_past": -1.8,
    "waited_for": 2.37,
    "others_waited_for": -3.94,
    "another_kind": 0.0,  # for each further kind on the part, at most three
    "alert": 0.09,
    "clock_unaffected": -4.12,
    "temperature_normal": -1.02,
    "blip": -5.0,
    "single_event": -1.4,
    "since_drop": 1.48,
    "left_by_run": -2.0,
    "untouched": -3.55,
    "touch_unknown": -0.5,
    "curve_for": 0.0,
    "curve_against": -0.63,
    "run_stands": 1.29,
    "symptom_names_it": 2.63,
    "takes_turns": -3.5,
    "waits_itself": -3.5,
}

# An alert weighs as the severity that its rule has as a cause (model/named_causes.py, 0 to 120), on this scale.
ALERT_MIDDLE, ALERT_SCALE = 70.0, 40.0
# A cause is reported with this confidence from this probability on; below `medium` it is not convincing.
CONFIDENCE: Mapping[str, float] = {"high": 0.93, "medium": 0.6}
# `high` also takes this distance, in logits, from the best cause on another part.
CLEAR = 1.0
# A conclusion is given up for another with new evidence only when that leads by so many logits.
LEAD = 0.7


@dataclass(frozen=True)
class Weights:
    """All figures of the ranking, so that a fit can try others."""

    priors: Mapping[str, float] = field(default_factory=lambda: {name: kind.prior for name, kind in KINDS.items()})
    features: Mapping[str, float] = field(default_factory=lambda: dict(FEATURES))
    confidence: Mapping[str, float] = field(default_factory=lambda: dict(CONFIDENCE))
    clear: float = CLEAR
    lead: float = LEAD

    def logit(self, kind: str, features: Mapping[str, float], alert_severity: float | None = None) -> float:
        """Return the sum of the prior and of all features, each times its value."""
        prior = self.priors[kind]
        if alert_severity is not None:
            prior = (alert_severity - ALERT_MIDDLE) / ALERT_SCALE
        return prior + sum(self.features[name] * value for name, value in features.items())


def probability(logit: float) -> float:
    """Return the logistic function."""
    return 1 / (1 + math.exp(-max(min(logit, 50.0), -50.0)))
