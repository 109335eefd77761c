"""Classify a run's MFU curve: the known troubles of Imbue's table, made precise, and drops that alerts report.

Sources: Imbue, "From bare metal to a 70B model" (2024), table of MFU symptoms; MegaScale (2024) on irregular garbage
collection; Hugging Face, SmolLM3 playbook, on throttled GPUs and storage; Llama 3 (2024) on the daily wave. Every class
has more than one possible cause, so the class only ranks the checks; evidence from the nodes names the culprit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from pyrometer_alerting.diagnosis.batches import MfuCurve
from pyrometer_alerting.diagnosis.curve_features import Dips, Features, Fit, best_step, features, undisturbed

LEAST_BATCHES = 20  # clean ones; with fewer there is no verdict
SURE = 0.5  # a kind below this confidence is reported as unknown
SHOWN = 0.05  # kinds below this are not exported

KINDS: Mapping[str, str] = {
    "steady": "steady: every batch near what this configuration reaches",
    "tenth_from_start": "below about a tenth of the expected MFU since the start, flat",
    "third_from_start": "about a third of the expected MFU since the start, flat",
    "low_from_start": "60 to 85 % of the expected MFU since the start, flat",
    "regular_stalls": "deep stalls at a regular number of steps",
    "rare_stalls": "rare, irregular deep stalls, good again with the next batch",
    "stall_burst": "a burst of deep stalls, good before and after",
    "gradual_decline": "slows down gradually",
    "frequent_dips": "shallow dips every few seconds",
    "noisy": "good on average, noisier than it should be",
    "step_down": "stepped down and stayed down",
    "spell": "was low for a while and came back",
    "daily_wave": "a wave of 24 hours",
    "stopped": "no batch for many times the usual step",
    "unknown": "deviates in an unknown way",
}

# The first thing to check, by kind, if the evidence from the nodes names nobody.
LOOK_AT: Mapping[str, str] = {
    "tenth_from_start": "NCCL on the wrong network (NET/Socket), switch ports of the upper tiers, PCIe lanes of a NIC",
    "third_from_start": "GPUDirect RDMA: nvidia_peermem on every host, NCCL's GDR setting, ACS off",
    "low_from_start": "symbol errors and rate of every port, bytes per NIC compared with each other, CPU "
    "frequency governor",
    "regular_stalls": "checkpoint or evaluation that is not tagged; no fault if the interval is the configured one",
    "rare_stalls": "CPU and storage pressure of the hosts, data loader, stack dumps of the slow batch",
    "stall_burst": "links that went down in these seconds, network retries and timeouts",
    "gradual_decline": "garbage collection out of phase between ranks, memory growth; a restart that heals it confirms",
    "frequent_dips": "clock-event counters, temperature and power of the GPUs, fans and power supplies",
    "noisy": "errors and congestion on the switches between the leaves, adaptive routing",
    "step_down": "what changed at that minute: a GPU's clock, a NIC's rate, a replaced node, a new job on "
    "shared hardware",
    "spell": "what began and ended in these minutes: throttling, a link, another job",
    "stopped": "the rank that went silent first, Xids, links that are down",
}


@dataclass(frozen=True)
class Verdict:
    """Confidence of each kind, 0 to 1, the likeliest first; `said` is the likeliest in one line with its numbers."""

    confidences: Mapping[str, float]
    said: str
    features: Features | None = None

    @property
    def kind(self) -> str:
        """The likeliest kind; `unknown` if none is likely enough."""
        return next(iter(self.confidences))


@dataclass(frozen=True)
class Reference:
    """The reference of the ratios.

    `own` means the run's own best because nothing else is known: then nobody can tell whether it was low from the
    start. `best_before` is the run's best ratio before the window, `wave` the amplitude of a 24-hour wave.
    """

    own: bool = False
    best_before: float | None = None
    wave: float = 0.0


def classify(curve: MfuCurve, reference: Reference, silent_seconds: float = 0.0) -> Verdict | None:
    """Return the verdict on a curve; None for too few batches. `silent_seconds` is the age of the newest batch."""
    if len(curve.at) < LEAST_BATCHES:
        return None
    if still := stopped(curve, silent_seconds):
        return still
    measured = features(curve)
    return judged(measured, fits_of(measured, reference))


def stopped(curve: MfuCurve, silent_seconds: float) -> Verdict | None:
    """Return the verdict on a stopped run; None if the age of the newest batch is nothing unusual."""
    usual = curve.step_seconds
    if silent_seconds <= max(10 * usual, 60.0):  # 10: the definition of a hang in published work; 60: scrapes
        return None
    return Verdict({"stopped": 1.0}, f"no batch for {silent_seconds:.0f} s, the usual step takes {usual:.3g} s")


def judged(measured: Features, fits: Mapping[str, float]) -> Verdict:
    """Return the verdict given how well each kind fits alone, 0 to 1."""
    confidences = _shared(fits, measured)
    return Verdict(confidences, _said(next(iter(confidences)), measured), measured)


def fits_of(f: Features, reference: Reference) -> dict[str, float]:
    """Return how well each kind fits alone, 0 to 1: each condition is a ramp, not a cliff."""
    step, spell = _best_step(f), _best_spell(f)
    change = max(_step_fit(step), _spell_fit(spell), _decline_fit(f))
    return {
        **_from_start(f, reference, change),
        "regular_stalls": _regular(f.deep),
        "rare_stalls": _rare(f.deep),
        "stall_burst": _burst(f.deep),
        "gradual_decline": _decline_fit(f),
        "frequent_dips": _frequent(f.shallow),
        "noisy": _noisy(f) * (1 - change),
        "step_down": _step_fit(step),
        "spell": _spell_fit(spell),
        "daily_wave": _over(reference.wave, 0.004, 0.008) * (1 - _over(reference.wave, 0.03, 0.05)),
    }


def _shared(fits: Mapping[str, float], f: Features) -> dict[str, float]:
    """Return confidences: equally good kinds share; the unexplained rest is unknown; without disturbance, steady."""
    best = max(fits.values())
    lost = _over(1 - f.mean, 0.03, 0.08)
    unknown, steady = lost * (1 - best), (1 - lost) * (1 - best)
    total = max(sum(fits.values()) + unknown + steady, 1e-9)
    confidences = {kind: value / total for kind, value in fits.items() if value / total >= SHOWN}
    confidences |= {"unknown": unknown / total, "steady": steady / total}
    ranked = dict(sorted(confidences.items(), key=lambda item: -item[1]))
    top, confidence = next(iter(ranked.items()))
    if top != "unknown" and max(confidence, fits.get(top, 0.0)) < SURE:  # two kinds at once share the confidence
        ranked = {"unknown": 1 - confidence, **{kind: value for kind, value in ranked.items() if kind != "unknown"}}
    return {kind: round(value, 3) for kind, value in ranked.items() if value >= SHOWN or kind == next(iter(ranked))}


def _over(value: float, low: float, high: float) -> float:
    """Return 0 up to `low`, 1 from `high` on, linear in between."""
    return min(max((value - low) / (high - low), 0.0), 1.0)


def _from_start(f: Features, reference: Reference, change: float) -> dict[str, float]:
    """Fit a flat low curve; the limits are Imbue's 1/10, 30 % and 60-80 %, met half-way."""
    earlier = reference.best_before
    fell_before = earlier is not None and earlier > 1.1 * f.level
    whole = f.fits[0]
    flat = 0.0 if reference.own or fell_before else 1 - change
    flat *= 1 - _over(whole.flat / max(f.level, 1e-9), 0.015, 0.03)
    level = f.level
    return {
        "tenth_from_start": flat * (1 - _over(level, 0.14, 0.18)),
        "third_from_start": flat * _over(level, 0.14, 0.18) * (1 - _over(level, 0.42, 0.48)),
        "low_from_start": flat * _over(level, 0.42, 0.48) * (1 - _over(level, 0.87, 0.93)),
    }


def _regular(deep: Dips) -> float:
    """Fit equal gaps in steps, as checkpoints and evaluations have; at least three of them."""
    return _over(deep.count, 2.5, 4) * (1 - _over(deep.gap_cv_steps, 0.02, 0.06)) * _over(deep.spread, 0.3, 0.5)


def _rare(deep: Dips) -> float:
    irregular = _over(deep.gap_cv_steps, 0.02, 0.06)
    return _over(deep.count, 1.5, 3) * (1 - _over(deep.share, 0.05, 0.1)) * irregular * _over(deep.spread, 0.15, 0.3)


def _burst(deep: Dips) -> float:
    """Fit stalls that are all close together: a flapping link, not a job's habit."""
    return _over(deep.count, 1.5, 3) * (1 - _over(deep.spread, 0.15, 0.3))


def _frequent(shallow: Dips) -> float:
    """Fit Imbue's throttling GPU: dips to 70 % every 15 s, with equal gaps in seconds, not in steps."""
    often = _over(shallow.count, 3, 6) * (1 - _over(shallow.gap_seconds, 60, 120)) * _over(shallow.share, 0.005, 0.015)
    return often * (1 - _over(shallow.gap_cv_seconds, 0.3, 0.5))


def _noisy(f: Features) -> float:
    """Fit white noise between neighbouring batches. Imbue's range of 90 to 100 % is a sigma of 0.029."""
    absolute = _over(f.noise, 0.014, 0.022)
    risen = _over(f.noise / f.quiet_noise, 2.5, 4.0)
    white = 1 - _over(abs(f.autocorrelation), 0.3, 0.5)
    return max(absolute, risen) * white * _over(f.level, 0.85, 0.88)


def _best_step(f: Features) -> Fit:
    return max(f.fits, key=_step_fit)


def _best_spell(f: Features) -> Fit:
    return max(f.fits, key=_spell_fit)


def _step_fit(fit: Fit) -> float:
    """Fit a fall of more than 5 % that a step explains better than a line or a spell that ends."""
    fall = 1 - fit.after / fit.before if fit.before > 0 else 0.0
    clear = 1 - _over(fit.step / max(fit.flat, 1e-9), 0.5, 0.8)
    not_line = 1 - _over(fit.step / max(fit.line, 1e-9), 0.7, 0.95)
    not_spell = _over(fit.spell / max(fit.step, 1e-9), 0.5, 0.75)
    not_hinge = 1 - _hinged(fit)
    significant = _over((fit.before - fit.after) / max(fit.step, 1e-9), 4, 6)
    return _over(fall, 0.035, 0.06) * clear * not_line * not_spell * not_hinge * significant


def _hinged(fit: Fit) -> float:
    """Return how much better a decline that begins within the window explains it than a step."""
    return 1 - _over(fit.hinge / max(fit.step, 1e-9), 0.55, 0.75)


def _spell_fit(fit: Fit) -> float:
    fall = 1 - fit.inside / fit.outside if fit.outside > 0 else 0.0
    better = 1 - _over(fit.spell / max(min(fit.step, fit.line, fit.flat), 1e-9), 0.5, 0.8)
    significant = _over((fit.outside - fit.inside) / max(fit.spell, 1e-9), 4, 6)
    return _over(fall, 0.035, 0.06) * better * significant


def _decline_fit(f: Features) -> float:
    """Fit a line that explains it better than a step, or ever more frequent dips; a restart that heals it confirms."""
    fit = f.trend
    falling = _over(-fit.slope / max(f.level, 1e-9), 0.02, 0.035)
    line = falling * (1 - _over(fit.line / max(fit.step, 1e-9), 0.95, 1.2))
    line *= 1 - _over(fit.line / max(abs(fit.slope), 1e-9), 0.08, 0.14)
    ever_more = _over(f.shallow.count, 8, 12) * _over(f.shallow.late, 0.64, 0.75) * _over(f.shallow.share, 0.01, 0.02)
    healed = _over(f.resets, 0.5, 0.8) * falling
    begun = _over(fit.fallen / max(f.level, 1e-9), 0.02, 0.035) * _hinged(fit)
    return max(line, ever_more * _over(f.shallow.gap_cv_seconds, 0.2, 0.4), healed, begun)


def _said(kind: str, f: Features) -> str:
    """Describe the kind with its numbers."""
    numbers = {
        "regular_stalls": f"{f.deep.count} stalls, one every {f.deep.gap_seconds:.0f} s",
        "rare_stalls": f"{f.deep.count} stalls in {f.seconds / 60:.0f} min",
        "stall_burst": f"{f.deep.count} stalls within {f.deep.spread * f.seconds:.0f} s",
        "frequent_dips": f"{f.shallow.count} dips to {100 * f.shallow.depth:.0f} %, one every "
        f"{f.shallow.gap_seconds:.0f} s",
        "noisy": f"standard deviation {100 * f.noise:.1f} % of the level",
        "step_down": f"by {100 * (1 - _best_step(f).after / _best_step(f).before):.0f} %",
        "spell": f"by {100 * (1 - _best_spell(f).inside / _best_spell(f).outside):.0f} %",
        "gradual_decline": f"by {-100 * f.trend.slope / max(f.level, 1e-9):.0f} % in "
        f"{f.trend_seconds / 60:.0f} min" + (", healed by the restart" if f.resets > 0.5 else ""),
    }
    levels = ("tenth_from_start", "third_from_start", "low_from_start")
    detail = f"at {100 * f.level:.0f} % of the expected MFU" if kind in levels else numbers.get(kind, "")
    return f"{KINDS[kind]}{f' ({detail})' if detail else ''}"


# From here on the share of right answers no longer grows much (benchmarks/signature_drops.py).
LEAST_SECONDS = 120.0
# Stalls within less than this are a burst while they last, whatever their gaps: flaps of a link come every 2 to 15 s,
# checkpoints and noisy neighbours every few minutes.
BURST_CANDIDATES, BURST_SECONDS = ("regular_stalls", "rare_stalls"), 300.0
# The onset is known to 5 s, and stalls just before it pull it forward, so the step itself is sought around it. Where
# there is none (dips, a decline), stalls there may be older or belong to the drop: they are not counted.
ABOUT_SECONDS, ABOUT_STEPS, STEP = 20.0, 5, 0.95
# No answer is reported as surer than such answers were right on simulated drops (benchmarks/signature_drops.py; the
# worse of two sets of seeds, rounded down to twentieths). A slow run whose every step holds a dip also looks like a
# step.
MAX_CONFIDENCE: Mapping[str, float] = {
    "step_down": 0.75,
    "spell": 0.9,
    "frequent_dips": 0.95,
    "gradual_decline": 0.75,
    "stall_burst": 0.9,
    "regular_stalls": 0.95,
    "rare_stalls": 0.85,
    "noisy": 0.9,
}
TOO_EARLY = Verdict({"unknown": 1.0}, "too early to say")


@dataclass(frozen=True)
class Drop:
    """A drop that an alert reports: when it fired and, if known, when the MFU fell (Unix seconds)."""

    fired_at: float
    onset: float | None = None

    def seen_at(self, onset: float | None) -> Drop:
        """Return the drop with the earlier of two onsets: a later one is of the same trouble."""
        return replace(self, onset=min((at for at in (self.onset, onset) if at is not None), default=None))

    def began(self, curve: MfuCurve) -> float:
        """Return the end of the last batch before the step at its onset; without a step, when the alert fired."""
        if self.onset is None:
            return self.fired_at
        about = max(ABOUT_SECONDS, ABOUT_STEPS * curve.step_seconds)
        around = curve.part(self.onset - about, self.onset + about)
        cut, _error = best_step(around.ratio)
        stepped = cut and np.median(around.ratio[cut:]) < STEP * np.median(around.ratio[:cut])
        return min(float(around.at[cut - 1]), self.fired_at) if stepped else self.fired_at


def classify_drop(curve: MfuCurve, drop: Drop, silent_seconds: float = 0.0) -> Verdict | None:
    """Return the verdict on a drop at the end of a curve; `unknown` while it is too young, None without batches.

    `silent_seconds` is the age of the newest batch: a stopped run needs no more batches to be recognised.
    """
    if len(curve.at) < LEAST_BATCHES:
        return None
    if still := stopped(curve, silent_seconds):
        return still
    began = drop.began(curve)
    own = curve.part(began)
    if len(own.at) < LEAST_BATCHES or own.at[-1] - began < LEAST_SECONDS:
        return TOO_EARLY
    return _capped(verdict_on(curve, began))


def verdict_on(curve: MfuCurve, began: float) -> Verdict:
    """Return the verdict on the batches since then, however few, with the confidence of the fits alone."""
    measured = features(curve.part(began), undisturbed(curve.part(-np.inf, began)))
    lasted = min(measured.deep.spread * measured.seconds / BURST_SECONDS, 1.0)
    fits = fits_of(measured, Reference(own=True))  # a run that fell was not low from its start
    return judged(measured, fits | {kind: lasted * fits[kind] for kind in BURST_CANDIDATES})


def _capped(verdict: Verdict) -> Verdict:
    surest = MAX_CONFIDENCE.get(verdict.kind, 1.0)
    return replace(verdict, confidences={kind: min(share, surest) for kind, share in verdict.confidences.items()})
