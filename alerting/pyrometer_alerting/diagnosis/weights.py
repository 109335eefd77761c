"""The weights by which causes are ranked: logits that add up to the probability that a cause is true.

The prior of each kind of fact, how much the mere sight of it says, is in the file of its subject in `evidence/`.
`FEATURES` has what its time, its extent, its strength and the other facts add or take. The figures are fitted to
generated incidents (`pyrometer_simulator.incidents.fit`, table in docs/diagnosis.md): no figure of the ranking is
anywhere else. Kinds and features that the incidents say nothing of keep the figure that the fit began with,
set by published practice: a lost GPU or link stops every rank; hardware slowdown and power brake cut clocks hardest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyrometer_alerting.diagnosis.catalog import Catalog, load

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

# An alert weighs as the severity that its rule has as a cause (model/alert_names.py, 0 to 120), on this scale.
ALERT_MIDDLE, ALERT_SCALE = 70.0, 40.0
# A cause is reported with this confidence from this probability on; below `medium` it is not convincing.
CONFIDENCE: Mapping[str, float] = {"high": 0.93, "medium": 0.6}
# `high` also takes this distance, in logits, from the best cause on another part.
CLEAR = 1.0
# A conclusion is given up for another with new evidence only when that leads by so many logits.
LEAD = 0.7


@dataclass(frozen=True)
class Weights:
    """All figures of the ranking, so that a fit can try others; the priors are those of the catalog's kinds."""

    catalog: Catalog = field(default_factory=load)
    features: Mapping[str, float] = field(default_factory=lambda: dict(FEATURES))
    confidence: Mapping[str, float] = field(default_factory=lambda: dict(CONFIDENCE))
    clear: float = CLEAR
    lead: float = LEAD

    @property
    def priors(self) -> Mapping[str, float]:
        """The prior of each kind."""
        return {name: kind.prior for name, kind in self.catalog.kinds.items()}

    def logit(self, kind: str, features: Mapping[str, float], alert_severity: float | None = None) -> float:
        """Return the sum of the prior and of all features, each times its value."""
        prior = self.catalog.kinds[kind].prior
        if alert_severity is not None:
            prior = (alert_severity - ALERT_MIDDLE) / ALERT_SCALE
        return prior + sum(self.features[name] * value for name, value in features.items())


def probability(logit: float) -> float:
    """Return the logistic function."""
    return 1 / (1 + math.exp(-max(min(logit, 50.0), -50.0)))
