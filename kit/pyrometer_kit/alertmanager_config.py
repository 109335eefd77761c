"""Read Alertmanager's configuration, as its status shows it: who is told of an alert, and what keeps it from there.

The routing is Alertmanager's own: the first route that matches decides, and those after it only where it has
``continue``; an inhibition mutes its targets while a source fires whose ``equal`` labels have the same values, and a
label that both lack is equal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import yaml

# Each alert of ours has one of these components: for whoever must exempt them.
COMPONENTS = ("gpu", "host", "nic", "stack", "train")
OUR_MATCHER = f'component=~"{"|".join(COMPONENTS)}"'
_MATCHER = re.compile(r'\s*("(?:[^"\\]|\\.)*"|[\w:.-]+)\s*(=~|!~|!=|=)\s*("(?:[^"\\]|\\.)*"|[^,{}]*)\s*')


class Matcher(NamedTuple):
    """A matcher of a label: ``=``, ``!=``, ``=~`` or ``!~``."""

    name: str
    operator: str
    value: str

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether these labels match; an expression that can't be read matches nothing."""
        value = labels.get(self.name, "")
        if self.operator in ("=", "!="):
            return (value == self.value) == (self.operator == "=")
        try:
            return bool(re.fullmatch(self.value, value, re.DOTALL)) == (self.operator == "=~")
        except re.error:
            return False

    def __str__(self) -> str:
        """Return it as it is written in a configuration."""
        return f'{self.name}{self.operator}"{self.value}"'


class Route(NamedTuple):
    """A route that an alert takes: its receiver, its matchers, and its place, such as ``route 2.1``."""

    receiver: str
    matchers: tuple[Matcher, ...]
    place: str

    def __str__(self) -> str:
        """Return ``route 2 (alertname="Watchdog")``."""
        return f"{self.place} ({_all(self.matchers)})" if self.matchers else self.place


class Inhibition(NamedTuple):
    """A rule that mutes its targets while a source fires."""

    sources: tuple[Matcher, ...]
    targets: tuple[Matcher, ...]
    equal: tuple[str, ...]

    def mutes(self, target: Mapping[str, str], source: Mapping[str, str]) -> bool:
        """Return whether it mutes an alert with the labels ``target`` while one with ``source`` fires."""
        return (
            all(matcher.matches(target) for matcher in self.targets)
            and all(matcher.matches(source) for matcher in self.sources)
            and all(target.get(name, "") == source.get(name, "") for name in self.equal)
        )

    def __str__(self) -> str:
        """Return ``severity="critical" hides severity=~"warning|info", equal: namespace, alertname``."""
        equal = f", equal: {', '.join(self.equal)}" if self.equal else ""
        return f"{_all(self.sources) or 'any alert'} hides {_all(self.targets) or 'any alert'}{equal}"


class Configuration(NamedTuple):
    """The tree of routes, the inhibitions, and how each receiver is told."""

    route: Mapping[str, Any]
    inhibitions: tuple[Inhibition, ...]
    channels: Mapping[str, tuple[str, ...]]
    """By receiver the kinds of its channels: ``webhook``, ``slack``; a receiver without any is for nobody."""

    def routes(self, labels: Mapping[str, str]) -> list[Route]:
        """Return the routes that decide about an alert, one for each receiver that is told."""
        return list(_walk(self.route, labels, str(self.route.get("receiver", "")), "", ()))

    def inhibition(self, target: Mapping[str, str], source: Mapping[str, str]) -> Inhibition | None:
        """Return the rule by which the alert with the labels ``source`` mutes the one with ``target``."""
        return next((rule for rule in self.inhibitions if rule.mutes(target, source)), None)

    def has_webhook(self, receivers: Iterable[str]) -> bool:
        """Return whether one of these receivers has a webhook, whose address Alertmanager keeps to itself."""
        return any("webhook" in self.channels.get(name, ()) for name in receivers)


def parse(text: str) -> Configuration:
    """Read the configuration in ``config.original`` of Alertmanager's ``/api/v2/status``.

    Raises:
        ValueError: it is not one; Grafana's and Mimir's may be empty.
    """
    try:
        document = yaml.safe_load(text)
        return Configuration(
            dict(document["route"]),
            tuple(map(_inhibition, document.get("inhibit_rules") or ())),
            {
                str(receiver["name"]): tuple(
                    name.removesuffix("_configs")
                    for name, value in receiver.items()
                    if name.endswith("_configs") and value
                )
                for receiver in document.get("receivers") or ()
            },
        )
    except (yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        msg = f"no configuration of Alertmanager: {type(error).__name__}"
        raise ValueError(msg) from None


def _walk(
    route: Mapping[str, Any], labels: Mapping[str, str], receiver: str, place: str, matchers: tuple[Matcher, ...]
) -> Iterator[Route]:
    told = False
    for number, child in enumerate(route.get("routes") or (), start=1):
        own = _matchers(child, "matchers", "match", "match_re")
        if all(matcher.matches(labels) for matcher in own):
            told = True
            where = f"{place}.{number}" if place else str(number)
            yield from _walk(child, labels, str(child.get("receiver") or receiver), where, own)
            if not child.get("continue"):
                break
    if not told:
        yield Route(receiver, matchers, f"route {place}" if place else "the default route")


def _inhibition(rule: Mapping[str, Any]) -> Inhibition:
    return Inhibition(
        _matchers(rule, "source_matchers", "source_match", "source_match_re"),
        _matchers(rule, "target_matchers", "target_match", "target_match_re"),
        tuple(map(str, rule.get("equal") or ())),
    )


def _matchers(item: Mapping[str, Any], name: str, equal: str, regular: str) -> tuple[Matcher, ...]:
    """Return the matchers of a route or rule, in today's notation and in that from before 0.22."""
    written = item.get(name) or ()
    return (
        *(matcher for text in ([written] if isinstance(written, str) else written) for matcher in _parsed(str(text))),
        *(Matcher(str(label), "=", str(value)) for label, value in (item.get(equal) or {}).items()),
        *(Matcher(str(label), "=~", str(value)) for label, value in (item.get(regular) or {}).items()),
    )


def _parsed(text: str) -> Iterator[Matcher]:
    for name, operator, value in _MATCHER.findall(text):
        yield Matcher(_unquoted(name), operator, _unquoted(value.strip()))


def _unquoted(text: str) -> str:
    quoted = len(text) > 1 and text[0] == text[-1] == '"'
    return re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], text[1:-1]) if quoted else text


def _all(matchers: Sequence[Matcher]) -> str:
    return ", ".join(map(str, matchers))
