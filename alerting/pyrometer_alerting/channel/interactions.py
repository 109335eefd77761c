"""Handle buttons and commands: acknowledge, silence, judge a diagnosis, answer. Every action is checked and audited.

A click carries only the incident's id: whatever a message holds can be read and copied by everyone who sees it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from pyrometer_alerting.channel import answers, judgement, payloads
from pyrometer_alerting.channel.blocks import Style
from pyrometer_alerting.channel.composer import (
    ACKNOWLEDGE,
    CONFIRM_DRAIN,
    CONFIRM_RETURN,
    DRAIN,
    JUDGE_RIGHT,
    JUDGE_WRONG,
    SHOW_NODE,
    SILENCE_1H,
    SILENCE_4H,
    UNSILENCE,
)
from pyrometer_alerting.channel.silences import (
    SILENCE_CALLBACK,
    Preview,
    SilenceRefusedError,
    silence_reason,
    silence_view,
    silences_for,
)
from pyrometer_alerting.channel.slack import WebSlack
from pyrometer_alerting.incidents.alertmanager import ActiveAlert, Alertmanager, AlertmanagerError, Matcher, Silence
from pyrometer_alerting.incidents.metrics import Metrics
from pyrometer_alerting.incidents.storage.store import Store, Transaction
from pyrometer_alerting.model import text
from pyrometer_alerting.model.incident import Incident
from pyrometer_alerting.model.links import board_links
from pyrometer_alerting.model.routing import Routing
from pyrometer_kit.clock import Clock

T = TypeVar("T")

_log = logging.getLogger(__name__)

EVERYONE = "*"
_HOURS = {SILENCE_1H: 1, SILENCE_4H: 4}
_JUDGEMENTS = {JUDGE_RIGHT: True, JUDGE_WRONG: False}
_NOT_LISTED = "You are not on the list of users who may do this (slack-users), or not a member of this workspace."
_ENVELOPE = "envelope:"
_MAX_ENVELOPES = 500  # Slack repeats within an hour
_SAME_CLICK_SECONDS = 600.0  # a click that is done again after a crash, by this or the next leader


@dataclass(frozen=True)
class Person:
    """The acting user: Slack's id, which counts, and a name for readers."""

    id: str
    name: str
    team: str = ""

    def __str__(self) -> str:
        return f"{self.name} ({self.id})" if self.name else self.id


class Interactions:
    """Handles clicks and commands; `users` and `routing` are replaced on reload."""

    def __init__(
        self,
        store: Store,
        replies: WebSlack,
        alertmanagers: Sequence[Alertmanager],
        *,
        style: Style,
        clock: Clock,
        metrics: Metrics,
        changed: Callable[[], None],
    ) -> None:
        self._store, self._replies, self._alertmanagers = store, replies, alertmanagers
        self._style, self._clock, self._metrics, self._changed = style, clock, metrics, changed
        self.confirm: Callable[[str, str], str] | None = None
        """Does what the policy asked for: set by the service, as the policy may be in force or not."""
        self.read_workspace: Callable[[], frozenset[str]] = frozenset
        """Asks for the ids of the workspace and organization whose members may act; none is any."""
        self._workspace: frozenset[str] = frozenset()
        self.users: frozenset[str] = frozenset()
        self.routing = Routing()

    def may(self, person: Person) -> bool:
        """Return whether this person is on the list, and of this workspace: a channel may be shared with others.

        Raises:
            SlackFailure: Slack does not say which workspace this is.
        """
        if person.id not in self.users and EVERYONE not in self.users:
            return False
        self._workspace = self._workspace or self.read_workspace()
        return not self._workspace or person.team in self._workspace

    def command(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a `/pyrometer ...` command; only its user sees the answer."""
        words = payloads.text(payload, "text").split(maxsplit=1)
        person = Person(payloads.text(payload, "user_id"), "", payloads.text(payload, "team_id"))
        if self.users and not self.may(person):
            self._audit(person, "refused", "", "command", aside=True)
            return {"response_type": "ephemeral", "text": _NOT_LISTED}
        return {"response_type": "ephemeral", "text": self._asked(words)}

    def is_done(self, envelope: str) -> bool:
        """Return whether this envelope was handled before, by an earlier process too."""
        with self._store.transaction() as tx:
            return tx.fact(_ENVELOPE + envelope) is not None

    def note_done(self, envelope: str) -> None:
        """Remember that this envelope was handled."""
        with self._store.transaction() as tx:
            handled = tx.facts(_ENVELOPE)
            for old in sorted(handled, key=lambda name: float(handled[name]))[
                : max(0, len(handled) + 1 - _MAX_ENVELOPES)
            ]:
                tx.forget_fact(_ENVELOPE + old)
            tx.save_fact(_ENVELOPE + envelope, repr(self._clock.wall()))

    def _asked(self, words: list[str]) -> str:
        now = self._clock.wall()
        with self._store.snapshot() as tx:
            firing = self._redacted(tx.recent_incidents(float("inf")))
            recent = self._redacted(tx.incidents()) if words[:1] == ["why"] else []
        if words == ["status"]:
            return answers.status(firing, now)
        if words == ["muted"]:
            return answers.muted(firing, self._silences(), now)
        if len(words) == 2 and words[0] == "why":
            return answers.why(words[1].strip(), [incident for incident in recent if not incident.joined_into], now)
        return answers.HELP

    def _redacted(self, incidents: Sequence[Incident]) -> list[Incident]:
        """Return the incidents as their channels may show them: a command reveals no more than the channel."""
        return [self.routing.redacted(incident) for incident in incidents]

    def _silences(self) -> list[Silence]:
        try:
            return self._first(lambda alertmanager: alertmanager.silences())
        except AlertmanagerError:
            return []

    def clicked(self, payload: Mapping[str, Any]) -> None:
        """Handle a pressed button."""
        person, channel = _person(payload), payloads.text(payloads.mapping(payload, "channel"), "id")
        actions = payload.get("actions")
        for action in actions if isinstance(actions, list) else ():
            name, incident_id = payloads.text(action, "action_id"), payloads.text(action, "value")
            if not self.may(person):
                self._refuse(person, channel, incident_id, name)
                continue
            if name in (CONFIRM_DRAIN, CONFIRM_RETURN):  # its value is a question of the policy
                answer = self.confirm(incident_id, str(person)) if self.confirm is not None else ""
            else:
                answer = self._do(name, incident_id, person, (payloads.text(payload, "trigger_id"), channel))
            if answer:
                self._replies.post_ephemeral(channel, person.id, answer)

    def _do(self, name: str, incident_id: str, person: Person, where: tuple[str, str]) -> str:
        with self._store.transaction() as tx:
            incident = tx.incident(incident_id)
            if incident is not None and incident.joined_into:
                incident = tx.incident(incident.joined_into)
            firing = tx.recent_incidents(float("inf"))
        if incident is None:
            return "This incident is no longer known."
        if name in (SHOW_NODE, DRAIN):
            return self._show(name, incident, firing)
        return self._act(name, incident, person, *where)

    def _act(self, name: str, incident: Incident, person: Person, trigger: str, channel: str) -> str:
        """Do what changes something; return what only this person is told."""
        if name == ACKNOWLEDGE:
            return self._acknowledge(incident.id, person)
        if name in _HOURS:
            return self._ask_to_silence(incident, _HOURS[name], trigger, channel)
        if name in _JUDGEMENTS:
            return self._judge(incident.id, person, trigger, channel, is_right=_JUDGEMENTS[name])
        return self._unsilence(incident, person) if name == UNSILENCE else ""

    def _show(self, name: str, incident: Incident, firing: Sequence[Incident]) -> str:
        """Return what the channel may see of the incident's nodes."""
        visible = self.routing.redacted(incident)
        if name == DRAIN:
            return answers.drain(visible, self._style.scheduler)
        links = [f"<{url}|{text.mrkdwn(label, 40)}>" for label, url in board_links(visible, self._style.grafana_url)]
        return answers.node(visible, self._redacted(firing), links, self._clock.wall())

    def _acknowledge(self, incident_id: str, person: Person) -> str:
        with self._store.transaction() as tx:
            incident = tx.incident(incident_id)
            if incident is None or not incident.firing:
                return "It is no longer firing."
            if incident.acknowledged == str(person):
                return ""  # a click that was interrupted by a crash, or one more
            tx.save_incident(replace(incident, acknowledged=str(person)), self._clock.wall())
            self._tell(tx, incident, f"\U0001f440 {text.mrkdwn(str(person), 120)} is looking into it")
            tx.audit(self._clock.wall(), str(person), "acknowledge", incident_id, "")
        self._changed()
        return ""

    def _judge(self, incident_id: str, person: Person, trigger: str, channel: str, *, is_right: bool) -> str:
        """Record whether the first cause is right; ask what it was if it is wrong."""
        with self._store.transaction() as tx:
            incident = tx.incident(incident_id)
            if incident is None or not judgement.first_cause(incident):
                return judgement.NOTHING_NAMED
            if not judgement.record(tx, incident, is_right=is_right, person=str(person), now=self._clock.wall()):
                return "You have already said so."
            visible = self.routing.redacted(incident)
            self._tell(tx, incident, judgement.reply(visible, is_right=is_right, person=str(person)))
        self._metrics.judgements.labels("right" if is_right else "wrong").inc()
        self._changed()
        if not is_right:
            self._replies.open_view(trigger, judgement.question(visible, channel))
        return ""

    def _ask_to_silence(self, incident: Incident, hours: int, trigger: str, channel: str) -> str:
        """Show what a silence would mute before it is created."""
        try:
            previews = [Preview(matchers, tuple(self._mutes(matchers))) for matchers in silences_for(incident)]
        except SilenceRefusedError as error:
            return f"Not silenced: {error}."
        except AlertmanagerError as error:
            return f"Not silenced: {error}."
        shows = self.routing.rules(incident.channel).shows
        self._replies.open_view(
            trigger, silence_view(incident, hours, channel, [preview.redacted(shows) for preview in previews])
        )
        return ""

    def _mutes(self, matchers: tuple[Matcher, ...]) -> list[ActiveAlert]:
        return self._first(lambda alertmanager: alertmanager.alerts(matchers))

    def submitted(self, payload: Mapping[str, Any]) -> None:
        """Handle a modal that was sent: create the silence, or record what the cause was."""
        view, person = payloads.mapping(payload, "view"), _person(payload)
        metadata = payloads.metadata(view)
        if view.get("callback_id") == judgement.CALLBACK:
            incident_id, channel = payloads.text(metadata, "incident"), payloads.text(metadata, "channel")
            self._explain(incident_id, channel, person, judgement.answered(view))
        elif view.get("callback_id") == SILENCE_CALLBACK:
            self._confirmed(metadata, person, silence_reason(view))

    def _explain(self, incident_id: str, channel: str, person: Person, said: str) -> None:
        """Record a person's own words on the cause of an incident."""
        if not self.may(person):
            self._refuse(person, channel, incident_id, judgement.JUDGED_CAUSE)
            return
        if not said:
            return
        with self._store.transaction() as tx:
            incident = tx.incident(incident_id)
            if any(
                row[1] == str(person) and row[4] == said for row in tx.audits_of(incident_id, (judgement.JUDGED_CAUSE,))
            ):
                return
            tx.audit(self._clock.wall(), str(person), judgement.JUDGED_CAUSE, incident_id, said)
            if incident is not None:
                words = f"{text.mrkdwn(str(person), 120)} on the cause: {text.mrkdwn(said, 300)}"
                self._tell(tx, incident, f"\U0001f4dd {words}")
        self._changed()

    def _confirmed(self, metadata: Mapping[str, Any], person: Person, reason: str) -> None:
        incident_id, hours, channel = (
            payloads.text(metadata, "incident"),
            metadata.get("hours"),
            payloads.text(metadata, "channel"),
        )
        if not self.may(person) or not isinstance(hours, int) or hours not in _HOURS.values():
            self._refuse(person, channel, incident_id, "silence")
            return
        self._replies.post_ephemeral(channel, person.id, self._silence(incident_id, hours, person, reason))

    def _silence(self, incident_id: str, hours: int, person: Person, reason: str) -> str:
        with self._store.transaction() as tx:
            incident = tx.incident(incident_id)
        if incident is None:
            return "This incident is no longer known."
        comment = reason or f"{incident.alertname}, silenced from Slack"
        ends_at = self._clock.wall() + 3600.0 * hours
        silence_ids: list[str] = []
        try:
            for matchers in silences_for(incident):
                silence_ids += [
                    self._make(matchers, ends_at, str(person), comment)
                ]  # stored one at a time: the next may fail
        except (SilenceRefusedError, AlertmanagerError) as error:
            self._remember(incident, person, silence_ids, hours, comment)
            return f"Not silenced{' in full' if silence_ids else ''}: {error}."
        self._remember(incident, person, silence_ids, hours, comment)
        return (
            f"Silenced for {hours} h: {len(silence_ids)} silence{'s' if len(silence_ids) != 1 else ''} in Alertmanager."
        )

    def _make(self, matchers: tuple[Matcher, ...], ends_at: float, person: str, comment: str) -> str:
        """Return the id of a silence: of a new one, or of the one that this click made before a crash cut it off."""

        def make(alertmanager: Alertmanager) -> str:
            for silence in alertmanager.silences():
                same = (silence.created_by, silence.comment, set(silence.matchers)) == (person, comment, set(matchers))
                if same and silence.active and abs(ends_at - silence.ends_at) < _SAME_CLICK_SECONDS:
                    return silence.id
            return alertmanager.silence(matchers, ends_at, person, comment)

        return self._first(make)

    def _remember(self, incident: Incident, person: Person, silence_ids: list[str], hours: int, comment: str) -> None:
        with self._store.transaction() as tx:
            before = json.loads(tx.fact(_fact(incident)) or "[]")
            silence_ids = [silence_id for silence_id in silence_ids if silence_id not in before]
            if not silence_ids:
                return
            tx.save_fact(_fact(incident), json.dumps([*before, *silence_ids]))
            self._tell(
                tx,
                incident,
                f"\U0001f507 {text.mrkdwn(str(person), 120)} silenced it for {hours} h: {text.mrkdwn(comment, 200)}",
            )
            tx.audit(
                self._clock.wall(),
                str(person),
                "silence",
                incident.id,
                f"{hours} h: {' '.join(silence_ids)}: {comment}",
            )
        self._changed()

    def _unsilence(self, incident: Incident, person: Person) -> str:
        with self._store.transaction() as tx:
            silence_ids = json.loads(tx.fact(_fact(incident)) or "[]")
        if not silence_ids:
            return "It was not silenced from here: end the silence in Alertmanager."
        try:
            for silence_id in silence_ids:
                self._end(silence_id)
        except AlertmanagerError as error:
            return f"Not ended: {error}."
        with self._store.transaction() as tx:
            tx.forget_fact(_fact(incident))
            self._tell(tx, incident, f"\U0001f50a {text.mrkdwn(str(person), 120)} ended the silence")
            tx.audit(self._clock.wall(), str(person), "unsilence", incident.id, " ".join(silence_ids))
        self._changed()
        return ""

    def _end(self, silence_id: str) -> None:
        self._first(lambda alertmanager: alertmanager.expire(silence_id))

    def _first(self, ask: Callable[[Alertmanager], T]) -> T:
        """Ask the first Alertmanager that answers: peers of a cluster share their silences.

        Raises:
            AlertmanagerError: none answered.
        """
        failure = AlertmanagerError("--alertmanager.url is not set")
        for alertmanager in self._alertmanagers:
            try:
                return ask(alertmanager)
            except AlertmanagerError as error:
                failure = error
        raise failure

    def _tell(self, tx: Transaction, incident: Incident, content: str) -> None:
        now = self._clock.wall()
        tx.outbox.request(incident.id, now, now, incident.channel)
        blocks = [{"type": "section", "text": {"type": "mrkdwn", "text": content, "verbatim": True}}]
        tx.outbox.reply(incident.id, json.dumps({"text": content, "blocks": blocks}), now)

    def _refuse(self, person: Person, channel: str, incident_id: str, action: str) -> None:
        self._audit(person, "refused", incident_id, action)
        self._replies.post_ephemeral(channel, person.id, _NOT_LISTED)

    def _audit(self, person: Person, action: str, incident_id: str, detail: str, *, aside: bool = False) -> None:
        _log.warning("interaction: %s: %s", action, person.id)
        with self._store.transaction(aside=aside) as tx:
            tx.audit(self._clock.wall(), str(person), action, incident_id, detail)


def _person(payload: Mapping[str, Any]) -> Person:
    user = payloads.mapping(payload, "user")
    # The user's own workspace; `team` is that of the channel where the button was pressed.
    team = payloads.text(user, "team_id") or payloads.text(payloads.mapping(payload, "team"), "id")
    return Person(text.plain(payloads.text(user, "id"), 40), text.plain(payloads.text(user, "username"), 60), team)


def _fact(incident: Incident) -> str:
    return f"silences:{incident.id}"
