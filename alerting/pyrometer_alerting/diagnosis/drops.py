"""Which known trouble a drop draws, once it has a shape of its own.

A drop of a few seconds is a step whatever it becomes, and in the hour before it stands what has nothing to do with it.
So the kind of a drop is of its own batches alone; what was before is only the level that they fell from, and nothing is
said before there are enough of them. Every figure here is measured: `python benchmarks/signature_drops.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from pyrometer_alerting.diagnosis.curve_features import best_step, features, undisturbed
from pyrometer_alerting.diagnosis.signature import Reference, Verdict, fits_of, judged, stopped
from pyrometer_alerting.sources.batches import Curve

# Where the share of right answers no longer grows: of steps up to 3 s 85 % at 30 s, 94 at 60, 97 at 90, all at 120.
LEAST_SECONDS, LEAST_BATCHES = 120.0, 20
# Stalls that came within less than this are a burst as long as they last, whatever their gaps: flaps of a link come
# every 2 to 15 s, checkpoints and noisy neighbours every few minutes.
HABITS, HABIT_SECONDS = ("regular_stalls", "rare_stalls"), 300.0
# The onset is known to 5 s, and stalls just before it draw it forward: the step itself is looked for around it. Where
# there is none (dips, a decline), stalls there may be of before it or of its own: then they are nobody's.
ABOUT_SECONDS, ABOUT_STEPS, STEP = 20.0, 5, 0.95
# No answer is surer than such answers were right on drawn drops (the worse of two sets of seeds, rounded down to
# twentieths). Steps: 188 of 244, as a slow run whose every step holds a dip draws one too.
SUREST: Mapping[str, float] = {
    "step_down": 0.75,
    "spell": 0.9,
    "frequent_dips": 0.95,
    "gradual_decline": 0.9,
    "stall_burst": 0.9,
    "regular_stalls": 0.95,
    "rare_stalls": 0.85,
    "noisy": 0.9,
}
TOO_EARLY = Verdict({"unknown": 1.0}, "too early to say")


@dataclass(frozen=True)
class Drop:
    """A drop that an alert tells of: when that fired and, where known, when the MFU fell (Unix seconds)."""

    fired_at: float
    onset: float | None = None

    def seen_at(self, onset: float | None) -> Drop:
        """With what else is known of its onset: the earliest counts, as later ones are of the same trouble."""
        return replace(self, onset=min((at for at in (self.onset, onset) if at is not None), default=None))

    def began(self, curve: Curve) -> float:
        """The end of the last batch before it: of the step at its onset; where there is none, when the alert fired."""
        if self.onset is None:
            return self.fired_at
        about = max(ABOUT_SECONDS, ABOUT_STEPS * curve.step_seconds)
        around = curve.part(self.onset - about, self.onset + about)
        cut, _error = best_step(around.ratio)
        stepped = cut and np.median(around.ratio[cut:]) < STEP * np.median(around.ratio[:cut])
        return min(float(around.at[cut - 1]), self.fired_at) if stepped else self.fired_at


def classify_drop(curve: Curve, drop: Drop, silent_seconds: float = 0.0) -> Verdict | None:
    """The verdict on a drop at the end of a run's curve; `unknown` as long as it is too young, None without batches.

    `silent_seconds` is the time since the newest batch: a run that stands needs no more batches to be known.
    """
    if len(curve.at) < LEAST_BATCHES:
        return None
    if still := stopped(curve, silent_seconds):
        return still
    began = drop.began(curve)
    own = curve.part(began)
    if len(own.at) < LEAST_BATCHES or own.at[-1] - began < LEAST_SECONDS:
        return TOO_EARLY
    return _earned(verdict_on(curve, began))


def verdict_on(curve: Curve, began: float) -> Verdict:
    """What the batches since then look like, however few; with the confidence of the fits, earned or not."""
    measured = features(curve.part(began), undisturbed(curve.part(-np.inf, began)))
    lasted = min(measured.deep.spread * measured.seconds / HABIT_SECONDS, 1.0)
    fits = fits_of(measured, Reference(own=True))  # what fell was not low from its start
    return judged(measured, fits | {kind: lasted * fits[kind] for kind in HABITS})


def _earned(found: Verdict) -> Verdict:
    surest = SUREST.get(found.kind, 1.0)
    return replace(found, confidences={kind: min(share, surest) for kind, share in found.confidences.items()})
