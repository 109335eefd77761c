"""The tables of the SQLite file, and the upgrades of files that an earlier release wrote."""

from __future__ import annotations

SCHEMA = """
CREATE TABLE IF NOT EXISTS delivery (group_key TEXT PRIMARY KEY, digest TEXT NOT NULL, seen_at REAL NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS alert (
    fingerprint TEXT PRIMARY KEY, firing INTEGER NOT NULL, starts_at REAL NOT NULL, ends_at REAL,
    incident_id TEXT, seen_at REAL NOT NULL, doubted TEXT
) STRICT;
CREATE TABLE IF NOT EXISTS incident (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, key TEXT NOT NULL, firing INTEGER NOT NULL,
    changed_at REAL NOT NULL, document TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS incident_key (key TEXT PRIMARY KEY, incident_id TEXT NOT NULL) STRICT;
CREATE INDEX IF NOT EXISTS alert_by_incident ON alert (incident_id);
CREATE INDEX IF NOT EXISTS incident_firing ON incident (firing);
CREATE TABLE IF NOT EXISTS outbox (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, op_id TEXT NOT NULL UNIQUE, incident_id TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('root', 'reply')),
    state TEXT NOT NULL CHECK (state IN ('ready', 'sending', 'lookup', 'done', 'dead')),
    since REAL NOT NULL, not_before REAL NOT NULL, wanted INTEGER NOT NULL, sent INTEGER NOT NULL,
    attempts INTEGER NOT NULL, lookups INTEGER NOT NULL, sent_at REAL, posted_at REAL, degrade INTEGER NOT NULL,
    channel TEXT, ts TEXT, shown TEXT, body TEXT, error TEXT, target TEXT NOT NULL DEFAULT '',
    outlet TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX IF NOT EXISTS outbox_by_incident ON outbox (incident_id, kind, seq);
CREATE TABLE IF NOT EXISTS sweep (
    op_id TEXT PRIMARY KEY, channel TEXT NOT NULL, ts TEXT NOT NULL, thread TEXT, oldest REAL NOT NULL,
    due REAL NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS slack_call (incident_id TEXT NOT NULL, at REAL NOT NULL) STRICT;
CREATE INDEX IF NOT EXISTS slack_call_by_incident ON slack_call (incident_id, at);
CREATE TABLE IF NOT EXISTS audit (
    at REAL NOT NULL, user TEXT NOT NULL, action TEXT NOT NULL, incident_id TEXT NOT NULL, detail TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS fact (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS policy_action (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, cluster TEXT NOT NULL, node TEXT NOT NULL,
    kind TEXT NOT NULL, state TEXT NOT NULL, rule TEXT NOT NULL, incident_id TEXT NOT NULL, reason TEXT NOT NULL,
    by_whom TEXT NOT NULL, planned_at REAL NOT NULL, began_at REAL NOT NULL, ended_at REAL NOT NULL,
    detail TEXT NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS policy_action_by_node ON policy_action (cluster, node, planned_at);
CREATE INDEX IF NOT EXISTS policy_action_by_state ON policy_action (state);
"""

# After the upgrades, as they name columns that an older file gets from one.
INDEXES = """
CREATE INDEX IF NOT EXISTS outbox_due ON outbox (outlet, state, not_before);
"""

# The upgrades from schema 1 to 2, 2 to 3, and so on; SCHEMA has created new tables before.
MIGRATIONS = (
    # From release 0.1.0, in which an incident had a single key.
    """
    ALTER TABLE alert ADD COLUMN doubted TEXT;
    ALTER TABLE outbox ADD COLUMN target TEXT NOT NULL DEFAULT '';
    INSERT OR REPLACE INTO incident_key SELECT key, id FROM incident ORDER BY number;
    DROP INDEX incident_by_key;
    """,
    # From release 0.2.0, in which all went to Slack.
    """
    ALTER TABLE outbox ADD COLUMN outlet TEXT NOT NULL DEFAULT '';
    DROP INDEX IF EXISTS outbox_open;
    """,
)
SCHEMA_VERSION = 1 + len(MIGRATIONS)
