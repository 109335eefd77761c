"""Stand-ins for everything outside the alerting service, in one place: clock, Prometheus, deliveries."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from pyrometer_alerting.channel.blocks import Style
from pyrometer_alerting.channel.courier import Courier
from pyrometer_alerting.channel.delivery_loop import Timing
from pyrometer_alerting.channel.messages import ThreadReplies
from pyrometer_alerting.channel.slack import WebSlack
from pyrometer_alerting.diagnosis.diagnostician import Diagnostician
from pyrometer_alerting.incidents.alertmanager import ActiveAlert, AlertmanagerError, Matcher, Silence
from pyrometer_alerting.incidents.alertmanager_payload import parse
from pyrometer_alerting.incidents.intake import Intake, Outcome
from pyrometer_alerting.incidents.metrics import Metrics
from pyrometer_alerting.incidents.storage.store import Store
from pyrometer_alerting.model.incident import Alert, Incident
from pyrometer_kit import alertmanager_config
from pyrometer_kit.prometheus import PrometheusError, Series
from pyrometer_simulator.slack import FakeSlack

START = 1_795_300_000.0


class FakeClock:
    """A clock that moves only when advanced; the wall clock is set by `ahead`."""

    def __init__(self, now: float = START) -> None:
        self.time, self.ahead = now, 0.0

    def wall(self) -> float:
        return self.time + self.ahead

    def monotonic(self) -> float:
        return self.time

    def advance(self, seconds: float) -> None:
        self.time += seconds


class FakePrometheus:
    """Answers by the first pattern that a query matches; a counter per query."""

    def __init__(self) -> None:
        self.answers: list[tuple[str, list[Series] | Exception]] = []
        self.queries: list[str] = []

    def on(self, pattern: str, answer: list[Series] | Exception) -> None:
        self.answers.append((pattern, answer))

    def instant(self, query: str, at: float) -> list[Series]:
        return self._answer(query)

    def range(self, query: str, start: float, end: float, step: float) -> list[Series]:
        return self._answer(query)

    def _answer(self, query: str) -> list[Series]:
        self.queries.append(query)
        for pattern, answer in self.answers:
            if re.search(pattern, query):
                if isinstance(answer, Exception):
                    raise answer
                return answer
        return []


class FakeAlertmanager:
    """Knows what it is told; `silent` when it does not answer."""

    def __init__(self) -> None:
        self.known: list[ActiveAlert] = []
        self.silent = False
        self.made: list[tuple[tuple[Matcher, ...], float, str, str]] = []
        self.ended: list[str] = []
        self.muting: list[Silence] = []
        self.text = ""

    def configuration(self) -> alertmanager_config.Configuration | None:
        return alertmanager_config.parse(self.text) if self.text else None

    def alerts(self, matchers: Sequence[Matcher] = ()) -> list[ActiveAlert]:
        if self.silent:
            raise AlertmanagerError("Alertmanager did not answer (ConnectionError)")
        return [seen for seen in self.known if all(_matches(matcher, seen) for matcher in matchers)]

    def silences(self) -> list[Silence]:
        if self.silent:
            raise AlertmanagerError("Alertmanager did not answer (ConnectionError)")
        return self.muting

    def silence(self, matchers: Sequence[Matcher], ends_at: float, created_by: str, comment: str) -> str:
        if self.silent:
            raise AlertmanagerError("Alertmanager did not answer (ConnectionError)")
        self.made.append((tuple(matchers), ends_at, created_by, comment))
        self.muting.append(Silence(f"s{len(self.made)}", ends_at, created_by, comment, matchers=tuple(matchers)))
        return f"s{len(self.made)}"

    def expire(self, silence_id: str) -> None:
        self.ended.append(silence_id)

    def knows(
        self,
        *raw: Mapping[str, Any],
        muted: bool = False,
        receiver: str = "pyrometer",
        intervals: Mapping[str, tuple[str, ...]] | None = None,
        inhibited_by: tuple[str, ...] = (),
    ) -> None:
        self.known = [
            ActiveAlert(
                str(each["fingerprint"]),
                each["labels"],
                each["annotations"],
                datetime.fromisoformat(each["startsAt"].replace("Z", "+00:00")).timestamp(),
                muted=muted or bool(inhibited_by),
                inhibited_by=inhibited_by,
                receivers=(receiver,),
                intervals=intervals or {},
            )
            for each in raw
            if each["status"] == "firing"  # it does not report others
        ]


def _matches(matcher: Matcher, seen: ActiveAlert) -> bool:
    value = seen.labels.get(matcher.name, "")
    return re.fullmatch(matcher.value, value) is not None if matcher.is_regex else value == matcher.value


SILENT = PrometheusError("Prometheus did not answer (ConnectTimeout)")


def iso(unix: float) -> str:
    return datetime.fromtimestamp(unix, tz=timezone.utc).isoformat().replace("+00:00", "Z")


def raw_alert(
    name: str = "GpuLost",
    *,
    firing: bool = True,
    starts_at: float = START - 10,
    ends_at: float | None = None,
    fingerprint: str = "",
    annotations: Mapping[str, str] | None = None,
    **labels: str,
) -> dict[str, Any]:
    named = {"alertname": name, "cluster": "c1", "severity": "critical", **labels}
    return {
        "status": "firing" if firing else "resolved",
        "labels": named,
        "annotations": dict(annotations or {"summary": f"{name} summary", "description": "measured 1.5 of 2"}),
        "startsAt": iso(starts_at),
        "endsAt": "0001-01-01T00:00:00Z" if firing else iso(ends_at if ends_at is not None else starts_at + 60),
        "generatorURL": "http://prometheus/graph",
        "fingerprint": fingerprint or hashlib.sha256(json.dumps(sorted(named.items())).encode()).hexdigest()[:16],
    }


def body(*alerts: Mapping[str, Any], **more: Any) -> bytes:
    document = {
        "version": "4",
        "groupKey": '{}:{alertname="x"}',
        "receiver": "pyrometer",
        "status": "firing",
        "alerts": list(alerts),
        "truncatedAlerts": 0,
        "externalURL": "http://am-1:9093",
        **more,
    }
    return json.dumps(document).encode()


def alert(name: str = "GpuLost", *, firing: bool = True, **kwargs: Any) -> Alert:
    labels = {"alertname": name, "cluster": "c1", "severity": "critical", **kwargs.pop("labels", {})}
    defaults: dict[str, Any] = {
        "fingerprint": kwargs.pop("fingerprint", "f1"),
        "starts_at": START,
        "annotations": {},
        "ends_at": None if firing else START + 60,
    }
    return Alert(firing=firing, labels=labels, **{**defaults, **kwargs})


def training_incident(**kwargs: Any) -> Incident:
    member = alert(
        "TrainMfuDropped",
        labels={"run": "llama-70b", "component": "train"},
        annotations={
            "summary": "MFU of run llama-70b fell by 27 %",
            "description": "MFU of run llama-70b is 32.9 %, 27 % below the 45.0 % of its best hour.",
            "runbook": "docs/alerts.md#trainmfudropped",
        },
    )
    defaults: dict[str, Any] = {
        "id": "incident-1",
        "key": "k",
        "cluster": "c1",
        "alertname": "TrainMfuDropped",
        "run": "llama-70b",
        "severity": "critical",
        "component": "train",
        "received_at": START + 5,
        "started_at": START,
        "members": (member,),
    }
    return Incident(**{**defaults, **kwargs})


def benchmark(name: str) -> Any:
    """Import a program of benchmarks/ as a module."""
    path = Path(__file__).parents[2] / "benchmarks" / f"{name}.py"
    if str(path.parent) not in sys.path:  # as it is where the program itself is run: it has modules beside it
        sys.path.append(str(path.parent))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def wait_until(condition: Callable[[], object], seconds: float = 30.0) -> None:
    import time

    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def logged_port(logged: Callable[[], str]) -> int:
    """Return the port that a service started on port 0 reports in its log."""
    found: list[str] = []
    wait_until(lambda: found or found.extend(re.findall(r"listening on 127\.0\.0\.1:(\d+)", logged())))
    return int(found[0])


def told(message: Mapping[str, Any], store: Store) -> dict[str, Any]:
    """Return a message with all its words in `text`, the evidence in its thread included, which is no reply then."""
    with store.transaction() as tx:
        operations = [tx.outbox.get(reply["metadata"]["event_payload"]["op_id"]) for reply in message["replies"]]
    evidence = [operation is not None and operation.is_evidence for operation in operations]
    said = [message["text"], *(block["text"]["text"] for block in message["blocks"][1:] if "text" in block)]
    said += [reply["text"] for reply, is_evidence in zip(message["replies"], evidence, strict=True) if is_evidence]
    replies = [reply for reply, is_evidence in zip(message["replies"], evidence, strict=True) if not is_evidence]
    return {**message, "text": "\n".join(said), "replies": replies}


def _op_of(args: Mapping[str, Any]) -> str:
    metadata = args.get("metadata") or {}
    known = json.loads(metadata) if isinstance(metadata, str) else metadata
    return str(known.get("event_payload", {}).get("op_id", ""))


class Bench:
    """Store, intake and courier on a FakeClock."""

    def __init__(self, store: Store, slack: FakeSlack, clock: FakeClock, channel: str = "#gpu-alerts") -> None:
        self.store, self.slack, self.clock, self.channel = store, slack, clock, channel
        self.metrics = Metrics()
        self.intake = Intake(store, replies=ThreadReplies(Style()), clock=clock, metrics=self.metrics, diagnoses=False)
        self.web = WebSlack("xoxb-test", slack.url)
        self.web._client.timeout = 60  # a busy machine is no lost answer
        self.restart()

    def restart(self) -> None:
        self.courier = Courier(
            self.store, self.web, self.channel, style=Style(), clock=self.clock, metrics=self.metrics, timing=Timing()
        )
        self.courier.recover()

    def receive(self, *alerts: Mapping[str, Any], **more: Any) -> Outcome:
        return self.intake.apply(parse(body(*alerts, **more)))

    def deliver(self, seconds: float = 300.0) -> None:
        """Step until nothing is left to do or so many seconds have passed."""
        end = self.clock.time + seconds
        while (wait := self.courier.step()) < Timing().idle or self.depth():
            if self.clock.time + wait > end:
                break
            self.clock.advance(wait + 0.001)

    def depth(self) -> int:
        with self.store.transaction() as tx:
            return tx.outbox.depth()[0]

    @property
    def messages(self) -> list[dict[str, Any]]:
        return [told(message, self.store) for message in self.slack.messages("gpu-alerts")]

    def calls_on_cards(self) -> list[Any]:
        """Return the calls to Slack, without those on the evidence, which follows its card and calls nobody."""
        with self.store.transaction() as tx:
            known = [(call, tx.outbox.get(_op_of(call.args))) for call in self.slack.calls]
        return [call for call, operation in known if operation is None or not operation.is_evidence]

    def count(self, method: str, outcome: str | None = None) -> int:
        return sum(call.method == method and outcome in (None, call.outcome) for call in self.slack.calls)


def diagnostician(bench: Bench) -> Diagnostician:
    """Diagnose the incidents of a bench, whose Prometheus has no data."""
    return Diagnostician(
        bench.store,
        FakePrometheus(),
        replies=ThreadReplies(Style()),
        clock=bench.clock,
        metrics=bench.metrics,
        changed=lambda: None,
    )
