"""All reads and writes of the store, in the words of what they mean, inside one transaction."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict
from functools import cached_property

from pyrometer_alerting.incidents.storage.actions import Actions
from pyrometer_alerting.incidents.storage.engine import Connection
from pyrometer_alerting.incidents.storage.outbox import Outbox
from pyrometer_alerting.model.incident import SEVERITIES, Alert, Incident, from_json, to_json

MAX_LISTED = 200
_CHUNK = 500  # values in one statement: SQLite takes 999 in its oldest releases
_AUDIT = 'at, "user", action, incident_id, detail'  # `user` is a word of SQL


class Transaction:
    """All operations on the store inside one transaction."""

    def __init__(self, connection: Connection, outlets: Sequence[str] = ()) -> None:
        """Let the outbox pass on what is requested of messages to these outlets."""
        self._db = connection
        self.outbox = Outbox(connection, outlets)

    @cached_property
    def actions(self) -> Actions:
        """Actions of the policy."""
        return Actions(self._db)

    def outbox_of(self, outlet: str) -> Outbox:
        """Return the outbox of an outlet other than Slack."""
        return Outbox(self._db, outlet=outlet)

    def adopt_outlets(self, names: Sequence[str], now: float) -> None:
        """Let new outlets hear of all that fires, and forget the notices of removed ones."""
        removed = " AND outlet != ?" * len(names)
        self._db.execute(f"DELETE FROM outbox WHERE outlet != ''{removed}", tuple(names))  # noqa: S608
        for name in names:
            box = self.outbox_of(name)
            for incident in self.recent_incidents(float("inf")):
                if incident.is_posted and box.root(incident.id) is None:
                    box.request(incident.id, now, now)

    def is_repeated(self, group: str, digest: str, now: float) -> bool:
        """Return whether the last delivery of this group had the same digest; remember this one."""
        row = self._db.execute("SELECT digest FROM delivery WHERE group_key = ?", (group,)).fetchone()
        self._db.execute(
            "INSERT INTO delivery (group_key, digest, seen_at) VALUES (?, ?, ?)"
            " ON CONFLICT (group_key) DO UPDATE SET digest = excluded.digest, seen_at = excluded.seen_at",
            (group, digest, now),
        )
        return row is not None and row[0] == digest

    def forget_deliveries(self) -> None:
        """Treat the next delivery of any group as new, whatever its digest."""
        self._db.execute("DELETE FROM delivery")

    def known_alert(self, fingerprint: str) -> tuple[Alert | None, float]:
        """Return the last state of this alert, without its labels, and when it arrived."""
        return self.known_alerts([fingerprint]).get(fingerprint, (None, 0.0))

    def known_alerts(self, fingerprints: Sequence[str]) -> dict[str, tuple[Alert | None, float]]:
        """Return `known_alert` of those that are known, in few statements: a server is asked over a wire."""
        found: dict[str, tuple[Alert | None, float]] = {}
        for start in range(0, len(fingerprints), _CHUNK):
            chunk = fingerprints[start : start + _CHUNK]
            marks = ",".join("?" * len(chunk))
            query = f"SELECT fingerprint, firing, starts_at, ends_at, seen_at FROM alert WHERE fingerprint IN ({marks})"  # noqa: S608
            for row in self._db.execute(query, tuple(chunk)):
                found[str(row[0])] = (Alert(str(row[0]), bool(row[1]), {}, {}, row[2], row[3]), row[4])
        return found

    def save_alert(self, alert: Alert, incident_id: str | None, now: float) -> None:
        """Save the present state of this alert."""
        self.save_alerts([alert], incident_id, now)

    def save_alerts(self, alerts: Sequence[Alert], incident_id: str | None, now: float) -> None:
        """Save the present state of alerts of one incident."""
        self._db.executemany(
            "INSERT INTO alert (fingerprint, firing, starts_at, ends_at, incident_id, seen_at)"
            " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (fingerprint) DO UPDATE SET firing = excluded.firing,"
            " starts_at = excluded.starts_at, ends_at = excluded.ends_at, incident_id = excluded.incident_id,"
            " seen_at = excluded.seen_at, doubted = NULL",
            [
                (alert.fingerprint, int(alert.firing), alert.starts_at, alert.ends_at, incident_id, now)
                for alert in alerts
            ],
        )

    def park_alert(self, alert: Alert) -> None:
        """Park a possibly stale firing alert until Alertmanager confirms it."""
        self._db.execute(
            "UPDATE alert SET doubted = ? WHERE fingerprint = ?", (json.dumps(asdict(alert)), alert.fingerprint)
        )

    def parked_alerts(self) -> list[tuple[Alert, float]]:
        """Return the parked alerts, each with the time at which the contradicting resolve arrived."""
        rows = self._db.execute("SELECT doubted, seen_at FROM alert WHERE doubted IS NOT NULL")
        return [(Alert(**json.loads(row[0])), row[1]) for row in rows]

    def release_alert(self, fingerprint: str) -> None:
        """Remove the alert from the parked ones."""
        self._db.execute("UPDATE alert SET doubted = NULL WHERE fingerprint = ?", (fingerprint,))

    def latest_incident(self, key: str) -> Incident | None:
        """Return the newest incident of this key, or the one that absorbed it."""
        row = self._db.execute(
            "SELECT document FROM incident WHERE id = (SELECT incident_id FROM incident_key WHERE key = ?)", (key,)
        ).fetchone()
        return None if row is None else from_json(row[0])

    def id_of_key(self, key: str) -> str | None:
        """Return the id of `latest_incident` without reading the document, which is large in a storm."""
        row = self._db.execute("SELECT incident_id FROM incident_key WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def incident_of_alert(self, fingerprint: str) -> str | None:
        """Return the id of the firing incident that this alert is a member of."""
        row = self._db.execute(
            "SELECT incident.id FROM alert JOIN incident ON incident.id = alert.incident_id"
            " WHERE fingerprint = ? AND incident.firing = 1",
            (fingerprint,),
        ).fetchone()
        return None if row is None else str(row[0])

    def move_alerts(self, source: str, target: str) -> None:
        """Move all alerts of one incident to another."""
        self._db.execute("UPDATE alert SET incident_id = ? WHERE incident_id = ?", (target, source))

    def move_alert(self, fingerprint: str, target: str) -> None:
        """Move one alert to another incident."""
        self._db.execute("UPDATE alert SET incident_id = ? WHERE fingerprint = ?", (target, fingerprint))

    def drop_incident(self, incident_id: str) -> None:
        """Delete an incident that was never posted."""
        self._db.execute("DELETE FROM outbox WHERE incident_id = ?", (incident_id,))
        self._db.execute("DELETE FROM incident WHERE id = ?", (incident_id,))

    def incident(self, incident_id: str) -> Incident | None:
        """Return the incident with this id."""
        row = self._db.execute("SELECT document FROM incident WHERE id = ?", (incident_id,)).fetchone()
        return None if row is None else from_json(row[0])

    def incidents(self, limit: int = MAX_LISTED) -> list[Incident]:
        """Return firing incidents, then resolved ones, each newest first."""
        rows = self._db.execute("SELECT document FROM incident ORDER BY firing DESC, number DESC LIMIT ?", (limit,))
        return [from_json(row[0]) for row in rows]

    def recent_incidents(self, since: float) -> list[Incident]:
        """Return incidents that fire now or changed since then, newest first, without absorbed ones."""
        rows = self._db.execute(
            "SELECT document FROM incident WHERE firing = 1 OR changed_at >= ? ORDER BY number DESC", (since,)
        )
        return [incident for incident in (from_json(row[0]) for row in rows) if not incident.joined_into]

    def pointers(self, incident_id: str) -> list[Incident]:
        """Return the incidents with a message of their own that this one absorbed."""
        # Not every engine reads JSON alike: all that names the id, and of those the ones that do so there.
        rows = self._db.execute("SELECT document FROM incident WHERE document LIKE ?", (f"%{incident_id}%",))
        return [incident for incident in (from_json(row[0]) for row in rows) if incident.joined_into == incident_id]

    def firing_count(self) -> dict[str, int]:
        """Return the number of firing incidents by severity."""
        counts = dict.fromkeys(SEVERITIES, 0)
        for incident in self.recent_incidents(float("inf")):
            counts[incident.severity] += 1
        return counts

    def save_incident(self, incident: Incident, now: float) -> None:
        """Insert or replace an incident; a new one gets the next number."""
        self._db.execute(
            "INSERT INTO incident (id, key, firing, changed_at, document) VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT (id) DO UPDATE SET firing = excluded.firing, changed_at = excluded.changed_at,"
            " document = excluded.document",
            (incident.id, incident.key, int(incident.firing), now, to_json(incident)),
        )
        if not incident.joined_into:
            keys = [(key, incident.id) for key in (incident.key, *incident.keys)]
            self._db.executemany(
                "INSERT INTO incident_key (key, incident_id) VALUES (?, ?)"
                " ON CONFLICT (key) DO UPDATE SET incident_id = excluded.incident_id",
                keys,
            )

    def forget_key(self, key: str) -> None:
        """Let the next alert of this key start an incident of its own."""
        self._db.execute("DELETE FROM incident_key WHERE key = ?", (key,))

    def fact(self, name: str) -> str | None:
        """Return a single remembered value, such as a channel id or the time of the last Watchdog."""
        row = self._db.execute("SELECT value FROM fact WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def facts(self, prefix: str) -> dict[str, str]:
        """Return all remembered values whose names have this prefix, by the rest of their names."""
        rows = self._db.execute("SELECT name, value FROM fact WHERE substr(name, 1, ?) = ?", (len(prefix), prefix))
        return {str(name)[len(prefix) :]: str(value) for name, value in rows}

    def save_fact(self, name: str, value: str) -> None:
        """Save a single value."""
        self._db.execute(
            "INSERT INTO fact (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            (name, value),
        )

    def hear(self, prefix: str, names: Collection[str], now: float, most: int) -> None:
        """Save when these names below a prefix were heard, and forget those heard longest ago beyond so many."""
        for name in names:
            self.save_fact(prefix + name, repr(now))
        heard = self.facts(prefix)
        for name in sorted(heard, key=lambda name: float(heard[name]))[: max(0, len(heard) - most)]:
            self.forget_fact(prefix + name)

    def audit(self, at: float, user: str, action: str, incident_id: str, detail: str) -> None:
        """Record who did what."""
        self._db.execute(
            f"INSERT INTO audit ({_AUDIT}) VALUES (?, ?, ?, ?, ?)",  # noqa: S608 - constant
            (at, user, action, incident_id, detail),
        )

    def audits(self, limit: int = MAX_LISTED) -> list[tuple[float, str, str, str, str]]:
        """Return (time, user, action, incident, detail), newest first."""
        return list(self._db.execute(f"SELECT {_AUDIT} FROM audit ORDER BY at DESC, rowid DESC LIMIT ?", (limit,)))  # noqa: S608 - constant

    def audits_of(self, incident_id: str, actions: Sequence[str]) -> list[tuple[float, str, str, str, str]]:
        """Return one incident's rows of the audit trail with these actions, newest first."""
        return self._audits("incident_id = ?", (incident_id,), actions)

    def audits_between(
        self, start: float, end: float, actions: Sequence[str]
    ) -> list[tuple[float, str, str, str, str]]:
        """Return the rows of the audit trail with these actions from `start` to before `end`, newest first."""
        return self._audits("at >= ? AND at < ?", (start, end), actions)

    def _audits(
        self, where: str, values: Sequence[str | float], actions: Sequence[str]
    ) -> list[tuple[float, str, str, str, str]]:
        marks = ",".join("?" * len(actions))
        query = f"SELECT {_AUDIT} FROM audit WHERE {where} AND action IN ({marks}) ORDER BY rowid DESC"  # noqa: S608 - constants
        return list(self._db.execute(query, (*values, *actions)))

    def forget_fact(self, name: str) -> None:
        """Delete a single value."""
        self._db.execute("DELETE FROM fact WHERE name = ?", (name,))

    def forget(self, before: float) -> None:
        """Delete what was resolved and delivered before that time, so that the file stays small."""
        old = "SELECT id FROM incident WHERE firing = 0 AND changed_at < ?"
        self._db.execute(f"DELETE FROM outbox WHERE state IN ('done', 'dead') AND incident_id IN ({old})", (before,))  # noqa: S608 - constant
        self._db.execute(
            "DELETE FROM incident WHERE firing = 0 AND changed_at < ? AND id NOT IN (SELECT incident_id FROM outbox)",
            (before,),
        )
        self._db.execute(
            "DELETE FROM outbox WHERE kind = 'root' AND body IS NOT NULL AND state = 'done' AND since < ?", (before,)
        )
        self._db.execute("DELETE FROM alert WHERE firing = 0 AND seen_at < ?", (before,))
        self._db.execute("DELETE FROM delivery WHERE seen_at < ?", (before,))
        self._db.execute("DELETE FROM incident_key WHERE incident_id NOT IN (SELECT id FROM incident)")
        self._db.execute("DELETE FROM audit WHERE at < ?", (before,))
        self.actions.forget(before)
