"""The file of `--policy.file`: what takes a node out of service, within which limits, and what brings it back.

mode: dry-run                     # the default: says what it would do; `on` does it
limits: {per-hour: 4, percent: 10, keep: 1}
clusters:                         # the value of the label `cluster`, and who gives nodes to jobs there
  prod-a:
    slurm: {scontrol: /usr/bin/scontrol}
  prod-b:
    kubernetes: {url: "https://10.0.0.1:6443", token-file: /run/secrets/token, ca-file: /run/secrets/ca.crt}
rules:                            # the first that holds for a node
  - alert: GpuLost|GpuRowRemapFailed
    for: 5m
    do: drain
  - check: gpu_.*|hca_links
    for: 15m
    do: ask
  - cause: thermal throttling
    do: webhook
webhook: {url: "https://desk.example/nodes", token-file: /run/secrets/desk}
back: {tests: [dcgm, nccl], do: ask}
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pyrometer_alerting.incidents.storage.actions import ASK, DRAIN, WEBHOOK
from pyrometer_alerting.model.incident import CONFIDENCES
from pyrometer_alerting.model.links import is_web_url
from pyrometer_kit.errors import UsageError
from pyrometer_kit.yamlfile import Node, read

DRY_RUN, ON = "dry-run", "on"
ALERT, CHECK, CAUSE = "alert", "check", "cause"
_FINDINGS = (ALERT, CHECK, CAUSE)
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_SECTIONS = ("mode", "limits", "clusters", "rules", "webhook", "back")
_SLURM = ("scontrol", "seconds")
_KUBERNETES = ("url", "token-file", "ca-file", "selector", "pool", "seconds")
_TEST = re.compile(r"[A-Za-z0-9_.-]{1,60}")


@dataclass(frozen=True)
class Limits:
    """At most so many nodes in an hour, so many percent of a partition out of service, so many kept in it."""

    per_hour: int = 4
    percent: float = 10.0
    keep: int = 1


@dataclass(frozen=True)
class SlurmSettings:
    """How Slurm is asked: its command, and the seconds that an answer may take."""

    scontrol: str = "scontrol"
    seconds: float = 10.0


@dataclass(frozen=True)
class KubernetesSettings:
    """How the API server is asked; `selector` says which nodes count, `pool` is the label that names their pool."""

    url: str
    token_file: Path
    ca_file: Path
    selector: str = ""
    pool: str = ""
    seconds: float = 10.0


@dataclass(frozen=True)
class WebhookSettings:
    """Where an action is posted; the token, if any, goes into the header Authorization.

    A post without an answer is repeated with the same id for `retry` seconds; a receiver that ignores the id needs
    `retry: 0s` in the file.
    """

    url: str
    token_file: Path | None = None
    seconds: float = 10.0
    retry: float = 600.0


@dataclass(frozen=True)
class Rule:
    """One rule: a finding by its kind and pattern, for how long it must hold, and what is done."""

    finding: str
    pattern: str
    seconds: float
    do: str
    confidence: str = "high"

    @property
    def name(self) -> str:
        """The rule as people read it."""
        return f"{self.finding} {self.pattern}"

    def matches(self, name: str) -> bool:
        """Return whether it is about an alert, check or cause of this name; a cause may have it anywhere."""
        return bool(re.search(self.pattern, name) if self.finding == CAUSE else re.fullmatch(self.pattern, name))


@dataclass(frozen=True)
class Back:
    """Which active tests must have passed since the drain, and what is done then: `return` or `ask`; none: nothing."""

    tests: tuple[str, ...] = ()
    do: str = ASK


@dataclass(frozen=True)
class Policy:
    """The whole file; without one there are no rules and no clusters, and nothing is ever done."""

    mode: str = DRY_RUN
    limits: Limits = field(default_factory=Limits)
    clusters: Mapping[str, SlurmSettings | KubernetesSettings] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    webhook: WebhookSettings | None = None
    back: Back = field(default_factory=Back)

    @property
    def is_on(self) -> bool:
        """True if actions are done, not only said."""
        return self.mode == ON

    def that_asks(self) -> Policy:
        """Return the policy that asks a person wherever this one acts, for where anybody may post alerts."""
        rules = tuple(replace(rule, do=ASK) for rule in self.rules)
        return replace(self, rules=rules, back=replace(self.back, do=ASK))


def load(path: Path | None) -> Policy:
    """Read the file; None for no policy.

    Raises:
        UsageError: it cannot be used; the message names file, line and what would be right.
    """
    if path is None:
        return Policy()
    top = read(path)
    for name, node in top.items():
        if name not in _SECTIONS:
            raise UsageError(f"{node.place}: unknown setting {name}; known are {', '.join(_SECTIONS)}")
    if "rules" not in top or "clusters" not in top:
        raise UsageError(f"{path}: `clusters` and `rules` are needed: see docs/policy.md")
    policy = Policy(
        mode=_one_of(top, "mode", (DRY_RUN, ON), DRY_RUN),
        limits=_limits(top["limits"]) if "limits" in top else Limits(),
        clusters={name: _cluster(node) for name, node in top["clusters"].fields().items()},
        rules=tuple(map(_rule, top["rules"].items())),
        webhook=_webhook(top["webhook"]) if "webhook" in top else None,
        back=_back(top["back"]) if "back" in top else Back(),
    )
    if policy.webhook is None and any(rule.do == WEBHOOK for rule in policy.rules):
        raise UsageError(f"{path}: a rule has `do: webhook`, but the section `webhook` with its url is missing")
    return policy


def _limits(node: Node) -> Limits:
    fields = node.fields(("per-hour", "percent", "keep"))
    default = Limits()
    return Limits(
        int(_number(fields, "per-hour", default.per_hour, (0, 1000), whole=True)),
        _number(fields, "percent", default.percent, (0, 100)),
        int(_number(fields, "keep", default.keep, (1, 100_000), whole=True)),
    )


def _cluster(node: Node) -> SlurmSettings | KubernetesSettings:
    fields = node.fields(("slurm", "kubernetes"))
    if len(fields) != 1:
        raise UsageError(f"{node.place}: a cluster has either `slurm` or `kubernetes`")
    if "slurm" in fields:
        inner = fields["slurm"].fields(_SLURM) if fields["slurm"].value else {}
        scontrol = inner["scontrol"].text() if "scontrol" in inner else SlurmSettings.scontrol
        if not scontrol:
            raise UsageError(f"{inner['scontrol'].place}: scontrol is empty: give the command, such as scontrol")
        return SlurmSettings(scontrol, _number(inner, "seconds", SlurmSettings.seconds, (1, 300)))
    return _kubernetes(fields["kubernetes"])


def _kubernetes(node: Node) -> KubernetesSettings:
    fields = node.fields(_KUBERNETES)
    for name in ("url", "token-file", "ca-file"):
        if name not in fields or not fields[name].text():
            raise UsageError(f"{node.place}: kubernetes needs {name}")
    url = fields["url"].text()
    if not url.startswith("https://") or not is_web_url(url):
        raise UsageError(f"{fields['url'].place}: url must be an https address: a token is sent to it")
    return KubernetesSettings(
        url.rstrip("/"),
        Path(fields["token-file"].text()),
        Path(fields["ca-file"].text()),
        fields["selector"].text() if "selector" in fields else "",
        fields["pool"].text() if "pool" in fields else "",
        _number(fields, "seconds", KubernetesSettings.seconds, (1, 300)),
    )


def _webhook(node: Node) -> WebhookSettings:
    fields = node.fields(("url", "token-file", "seconds", "retry"))
    if "url" not in fields or not is_web_url(fields["url"].text()):
        raise UsageError(f"{node.place}: webhook needs an absolute url such as https://desk.example/nodes")
    token = Path(fields["token-file"].text()) if "token-file" in fields else None
    return WebhookSettings(
        fields["url"].text(),
        token,
        _number(fields, "seconds", WebhookSettings.seconds, (1, 300)),
        _duration(fields["retry"]) if "retry" in fields else WebhookSettings.retry,
    )


def _back(node: Node) -> Back:
    fields = node.fields(("tests", "do"))
    tests = [item.text() for item in fields["tests"].items()] if "tests" in fields else []
    if not tests:
        raise UsageError(f"{node.place}: `tests` must name the active tests to pass, such as [dcgm, nccl]")
    for test in tests:
        if not _TEST.fullmatch(test):
            raise UsageError(f"{fields['tests'].place}: {test!r} is not the name of a test")
    return Back(tuple(dict.fromkeys(tests)), _one_of(fields, "do", ("return", ASK), ASK))


def _rule(node: Node) -> Rule:
    fields = node.fields((*_FINDINGS, "for", "do", "confidence"))
    findings = [name for name in _FINDINGS if name in fields]
    if len(findings) != 1:
        raise UsageError(f"{node.place}: a rule has one of {', '.join(_FINDINGS)}")
    finding = fields[findings[0]]
    if "do" not in fields:
        raise UsageError(f"{node.place}: `do` is missing: it must be {DRAIN}, {ASK} or {WEBHOOK}")
    if "confidence" in fields and findings[0] != CAUSE:
        raise UsageError(f"{fields['confidence'].place}: only a rule on a cause has a confidence")
    return Rule(
        findings[0],
        _pattern(finding),
        _duration(fields["for"]) if "for" in fields else 0.0,
        _one_of(fields, "do", (DRAIN, ASK, WEBHOOK), ""),
        _one_of(fields, "confidence", CONFIDENCES, "high"),
    )


def _pattern(node: Node) -> str:
    pattern = node.text()
    try:
        matches_anything = re.compile(pattern).fullmatch("") is not None
    except re.error as error:
        raise UsageError(f"{node.place}: {pattern!r} is not a regular expression: {error}") from None
    if matches_anything:
        raise UsageError(f"{node.place}: {pattern!r} also matches the empty string: name what is meant")
    return pattern


def _duration(node: Node) -> float:
    match = re.fullmatch(r"(\d{1,6})([smhd])", node.text())
    if match is None:
        raise UsageError(f"{node.place}: {node.text()!r} is not a time such as 90s, 10m or 2h")
    return int(match[1]) * _UNITS[match[2]]


def _one_of(fields: Mapping[str, Node], name: str, known: tuple[str, ...], default: str) -> str:
    if name not in fields:
        return default
    value = fields[name].text()
    if value not in known:
        raise UsageError(f"{fields[name].place}: {name} is {value!r}; it can be {', '.join(known)}")
    return value


def _number(
    fields: Mapping[str, Node], name: str, default: float, within: tuple[float, float], *, whole: bool = False
) -> float:
    if name not in fields:
        return default
    convert: Callable[[str], float] = int if whole else float
    try:
        value = convert(fields[name].text())
    except ValueError:
        value = math.nan
    if not within[0] <= value <= within[1]:
        kind = "a whole number" if whole else "a number"
        raise UsageError(f"{fields[name].place}: {name} must be {kind} from {within[0]:g} to {within[1]:g}")
    return value
