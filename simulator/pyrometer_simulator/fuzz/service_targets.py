"""Targets of the alerting service and of the client: webhook, Slack, trainers' logs, dumps of the Flight Recorder."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pyrometer_simulator.fuzz.target import Check, Target

_NOW = 1_795_300_000.0
_ALICE = "U0ALICE"


class _Clock:
    def monotonic(self) -> float:
        """Return a time that stays."""
        return _NOW

    def wall(self) -> float:
        """Return a time that stays."""
        return _NOW


def webhook(folder: Path, at_end: ExitStack) -> Check:
    """Build the check of a delivery, from the body to the store, the message and the page."""
    from pyrometer_alerting.channel.blocks import Style  # noqa: PLC0415
    from pyrometer_alerting.channel.evidence import build_evidence  # noqa: PLC0415
    from pyrometer_alerting.channel.incident_page import Banner, Card, render  # noqa: PLC0415
    from pyrometer_alerting.channel.messages import ThreadReplies, build  # noqa: PLC0415
    from pyrometer_alerting.incidents.alertmanager_payload import BadDelivery, parse  # noqa: PLC0415
    from pyrometer_alerting.incidents.intake import Intake  # noqa: PLC0415
    from pyrometer_alerting.incidents.metrics import Metrics  # noqa: PLC0415
    from pyrometer_alerting.incidents.storage.store import Store  # noqa: PLC0415

    style = Style()
    count = 0
    store = Store(folder / "store")
    at_end.callback(lambda: store.close())  # noqa: PLW0108  the latest

    def check(data: bytes) -> None:
        nonlocal count, store
        try:
            delivery = parse(data)
        except BadDelivery as error:
            assert "\n" not in str(error)
            return
        count += 1
        if count % 256 == 0:  # incidents would pile up
            store.close()
            store = Store(folder / f"store-{count}")
        replies = ThreadReplies(style)
        Intake(store, replies=replies, clock=_Clock(), metrics=Metrics(), diagnoses=False).apply(delivery)
        with store.transaction() as tx:
            incidents = tx.recent_incidents(_NOW)[-20:]
        cards = [
            Card(
                incident, build(incident, style, linked=False), build_evidence(incident, style, native=False), "posted"
            )
            for incident in incidents
        ]
        messages = [message for card in cards for message in (card.message, card.evidence)]
        assert all(len(message.text) <= 4000 and len(message.blocks) <= 50 for message in messages)
        page = render(cards, Banner(), _NOW)
        assert "<script" not in page
        page.encode("utf-8")

    return check


def slack_payload(folder: Path, at_end: ExitStack) -> Check:
    """Build the check of clicks, modals and commands: answered or refused, and acted on for listed users only."""
    from slack_sdk.socket_mode.request import SocketModeRequest  # noqa: PLC0415

    from pyrometer_alerting.channel.blocks import Style  # noqa: PLC0415
    from pyrometer_alerting.channel.breaker import Breaker  # noqa: PLC0415
    from pyrometer_alerting.channel.clicks import BOX, Clicks  # noqa: PLC0415
    from pyrometer_alerting.channel.interactions import Interactions  # noqa: PLC0415
    from pyrometer_alerting.channel.socket_mode import Listener  # noqa: PLC0415
    from pyrometer_alerting.incidents.inbox import post_of  # noqa: PLC0415
    from pyrometer_alerting.incidents.metrics import Metrics  # noqa: PLC0415
    from pyrometer_alerting.incidents.storage.store import Store  # noqa: PLC0415
    from pyrometer_alerting.model.incident import Alert, Incident  # noqa: PLC0415

    class Replies:
        """Takes every reply, as JSON."""

        def open_view(self, trigger: str, view: Mapping[str, Any]) -> None:  # noqa: ARG002
            """Encode the modal."""
            json.dumps(view).encode()

        def post_ephemeral(self, channel: str, user: str, said: str) -> None:  # noqa: ARG002
            """Encode the reply."""
            json.dumps(said).encode()

    class Client:
        """Counts the answers to envelopes."""

        answers = 0

        def send_socket_mode_response(self, response: Any) -> None:  # noqa: ANN401
            """Encode the answer."""
            json.dumps(response.to_dict()).encode()
            self.answers += 1

    store, client = Store(folder / "store"), Client()
    at_end.callback(store.close)
    labels = {"alertname": "GpuLost", "cluster": "c1", "severity": "critical", "node": "gpu-001", "gpu": "3"}
    alert = Alert("f1", firing=True, labels=labels, annotations={}, starts_at=_NOW, ends_at=None)
    incident = Incident(
        id="incident-1", key="k", cluster="c1", alertname="GpuLost", run="", severity="critical", component="gpu",
        received_at=_NOW, started_at=_NOW, members=(alert,),
    )  # fmt: skip
    with store.transaction() as tx:
        tx.save_incident(incident, _NOW)
    replies: Any = Replies()
    made = Interactions(store, replies, [], style=Style(), clock=_Clock(), metrics=Metrics(), changed=lambda: None)
    made.users = frozenset({_ALICE})
    clicks = Clicks(post_of(store, BOX), made, _Clock())
    listener = Listener("xapp-none", None, made, clicks, breaker=Breaker(1.0), clock=_Clock())  # type: ignore[arg-type]
    kinds = ("interactive", "slash_commands", "events_api")
    number = 0

    def check(data: bytes) -> None:
        nonlocal number
        try:
            payload = json.loads(data[1:])
        except (ValueError, RecursionError):
            return
        if not isinstance(payload, dict):
            return
        number += 1
        before = client.answers
        kind = kinds[data[0] % len(kinds)]
        listener._on_request(client, SocketModeRequest(kind, f"e{number}", payload))  # type: ignore[arg-type]  # noqa: SLF001
        assert client.answers == before + 1
        clicks.step()
        with store.transaction() as tx:
            audits = tx.audits()
            actors = {who for _at, who, action, _incident, _detail in audits if action != "refused"}
        assert all(_ALICE in who for who in actors), actors

    return check


def trainer_log(folder: Path, _at_end: ExitStack) -> Check:
    """Build the check of pyrometer-follow, from lines to a ring that the exporter reads."""
    from pyrometer import ring  # noqa: PLC0415
    from pyrometer.follow.formats import all_formats  # noqa: PLC0415
    from pyrometer.follow.log_ring import LogRing  # noqa: PLC0415
    from pyrometer.follow.recorder import Recorder  # noqa: PLC0415
    from pyrometer.follow.step_reader import JobSize, StepReader  # noqa: PLC0415
    from pyrometer_exporters.node.train.rings import RingFile  # noqa: PLC0415

    formats = all_formats()
    description = {
        "run": "log", "rank": 0, "local_rank": 0, "world_size": 8, "reporting": True, "first_step": 0,
        "warmup_steps": 0, "tokens_per_step": 1000, "flops_per_token": 6e9, "peak_flops": 1e15,
        **dict.fromkeys(("model", "convention", "dtype", "gpu_model", "recompute", "job_id", "gpu", "uuid", "stage",
                         "replica", "global_batch_size", "micro_batch_size", "sequence_length")),
    }  # fmt: skip
    now = 10_000 * 10**9

    def check(data: bytes) -> None:
        lines = data.decode("utf-8", "replace").split("\n")
        made: list[LogRing] = []

        def open_ring(meta: Mapping[str, Any]) -> LogRing:
            made.append(LogRing(str(folder), {"source": "log:x", "world_size": 0, **meta}))
            return made[-1]

        size = JobSize(gpus=8, samples=16, sequence=128)
        reader, recorder = StepReader(formats, size), Recorder(description, size, 0, open_ring, lambda _: None)
        try:
            intervals = list(reader.read(lines, 10_000.0))
            assert all(interval.steps >= 1 for interval in intervals)
            recorder.record(intervals, now, f"log:{reader.format}")
            for one in made:
                file = RingFile(one.path)
                records = list(file.records(0, file.header().count))
                assert all(record.start <= record.end <= now for record in records)
                file.close()
        finally:
            recorder.close(ended_well=True)
            for path in folder.glob(f"*{ring.SUFFIX}"):
                path.unlink()

    return check


def flight_recorder(folder: Path, _at_end: ExitStack) -> Check:
    """Build the check of dumps: read, or refused in one line, and explained in printable lines."""
    from pyrometer.hang import BadDumpError, culprits, explain, join, read_dump  # noqa: PLC0415

    def check(data: bytes) -> None:
        head, _, tail = data.partition(b"\n--\n")
        dumps = []
        for rank, content in enumerate((head, tail)):
            path = folder / f"nccl_trace_rank_{rank}"
            path.write_bytes(content)
            try:
                dumps.append(read_dump(str(path)))
            except BadDumpError:
                continue
        culprits(dumps, join(dumps))
        assert all(line.isprintable() for line in explain(dumps))

    return check


_DELIVERY = {
    "version": "4", "groupKey": "{}:{}", "receiver": "web\\.hook", "truncatedAlerts": 0,
    "alerts": [
        {"status": "firing", "labels": {"alertname": "GpuLost", "cluster": "c1", "severity": "critical", "node": "gpu-1",
                                        "gpu": "3", "run": "llama"},
         "annotations": {"summary": "s", "description": "d", "runbook": "docs/alerts.md#gpulost"},
         "startsAt": "2026-11-21T03:12:05.123456789Z", "endsAt": "0001-01-01T00:00:00Z", "fingerprint": "1a2b"},
    ],
}  # fmt: skip
_RESOLVED = json.dumps(_DELIVERY).replace("firing", "resolved").replace("0001-01-01T00:00:00Z", "2026-11-21T04:00:00Z")
_CLICK = {
    "type": "block_actions", "user": {"id": _ALICE, "username": "alice"}, "channel": {"id": "C1"}, "trigger_id": "t",
    "actions": [{"action_id": "pyrometer_acknowledge", "value": "incident-1"}],
}  # fmt: skip
_MODAL = {
    "type": "view_submission", "user": {"id": _ALICE},
    "view": {"callback_id": "pyrometer_silence", "private_metadata": '{"incident":"incident-1","hours":1,"channel":"C1"}',
             "state": {"values": {"reason": {"reason": {"value": "why"}}}}},
}  # fmt: skip
_JUDGED = json.dumps(_MODAL).replace("pyrometer_silence", "pyrometer_judgement").replace("reason", "answer")
_LOGS = (
    b" iteration        2/     100 | consumed samples:          32 | elapsed time per iteration (ms): 500.0 | throughput "
    b"per GPU (TFLOP/s/GPU): 412.3 | learning rate: 1.0E-4 | global batch size:    16 | lm loss: 2.04E+00 | grad norm: 1.1 |\n"
    b" iteration        3/     100 | consumed samples:          48 | elapsed time per iteration (ms): 501.0 | lm loss: 2.0 |",
    b"[rank0]:[titan] 2026-01-01 00:00:00,000 - root - INFO - step:  2  loss:  7.1  grad_norm:  1.2  memory: 40.1GiB(50%)  "
    b"tps: 5,000  tflops: 300.1  mfu: 30.1%\n[rank0]:[titan] INFO - step:  3  loss:  7.0  tps: 5,001  mfu: 30.0%",
    b"{'loss': 2.1, 'grad_norm': 1.5, 'learning_rate': 5e-05, 'epoch': 0.1}\n 2%|  | 2/100 [00:10<08:10,  5.00s/it]",
    b"iter 10: loss 2.1, time 500.10ms, mfu 30.10%\niter 11: loss 2.0, time 501.10ms, mfu 30.00%",
    b"Epoch 1 | iter 2 step 2 | loss train: 2.1, val: n/a | iter time: 500.10 ms (step)",
    b"[2026-01-01 00:00:00,000] [INFO] [timer.py:199:stop] epoch=0/micro_step=10/global_step=10, RunningAvgSamplesPerSec=8, "
    b"CurrSamplesPerSec=8, MemAllocated=1GB\nsteps: 10 loss: 2.1 iter time (s): 0.5 samples/sec: 16",
    b"Training DataLoader 0:  10%|  | 10/100 [00:50<07:30, 0.2it/s, v_num=0, reduced_train_loss=2.1, global_step=9, "
    b"consumed_samples=160, train_step_timing in s=5.0]",
    b"iteration: 5 / 100 | consumed_tokens: 5.2M | time_per_iteration_ms: 500 | tokens_per_sec: 10K | "
    b"tokens_per_sec_per_gpu: 1.2K | global_batch_size: 16 | lm_loss: 2.1 | lr: 1 | model_tflops_per_gpu: 300 | grad_norm: 1",
    b"[batch=2/100]:\n\t Train time/batch: 2\n\t Train throughput/batches_per_sec: 0.2\n\t Train loss/train/total: 2.1",
)
_ENTRY = {
    "process_group": ("0", "default_pg"), "collective_seq_id": 7, "profiling_name": "nccl:all_reduce", "pg_id": 0,
    "state": "scheduled", "is_p2p": False, "retired": False,
    "frames": [{"filename": "/job/train.py", "line": 10, "name": "step"}],
}  # fmt: skip
_DUMP = {
    "entries": [_ENTRY], "pg_config": {"0": {"ranks": "[0, 1, 2]"}},
    "pg_status": {"0": {"last_completed_collective": 6}},
}  # fmt: skip

TARGETS = (
    Target("webhook", "Alertmanager's deliveries, of whoever reaches the port", webhook,
           (json.dumps(_DELIVERY).encode(), _RESOLVED.encode()),
           (b'"startsAt"', b'"endsAt"', b'"labels"', b'"annotations"', b"\\ud800", b"9999-12-31T23:59:59Z", b"TrainMfuDropped",
            b"+23:59", b'"truncatedAlerts"', b"Watchdog", b"<!channel>", b"NicLinkFlapping", b"1970-01-01T00:00:00Z")),
    Target("slack_payload", "clicks, modals and commands, as Slack passes them on", slack_payload,
           (b"\x00" + json.dumps(_CLICK).encode(), b"\x00" + json.dumps(_MODAL).encode(), b"\x00" + _JUDGED.encode(),
            b'\x01{"text": "status", "user_id": "U0ALICE"}', b'\x01{"text": "why GpuLost", "user_id": "U0ALICE"}',
            b'\x01{"text": "muted", "user_id": "U0BOB"}'),
           (b"pyrometer_silence_1h", b"pyrometer_unsilence", b"pyrometer_node", b"pyrometer_drain", b"pyrometer_judge_wrong",
            b"null", b"[]", b"{}", b'""', b"\\ud800", b"U0BOB", b"1" * 5000, b"1e999", b"NaN")),
    Target("trainer_log", "lines that a training job prints", trainer_log, _LOGS,
           (b"iteration", b"consumed samples: ", b"elapsed time per iteration (ms): ", b"[default7]:", b"tps: ", b"mfu: ",
            b"nan", b"1e308", b"9" * 15, b"%|", b"s/it]", b"it/s", b"'loss': ", b"world size: ", b"step:")),
    Target("flight_recorder", "dumps of PyTorch's Flight Recorder, which the job may have written", flight_recorder,
           (pickle.dumps(_DUMP, 2), pickle.dumps(_DUMP, 4), json.dumps(_DUMP).encode(),
            json.dumps(_DUMP).encode() + b"\n--\n" + json.dumps(_DUMP).replace("7,", "8,").encode()),
           (b"\n--\n", b'"entries"', b'"ranks"', b'"process_group"', b'"collective_seq_id"', b"1" * 5000, b"cos\nsystem\n",
            b"\\u001b[31m", b'"is_p2p": true', b'"completed"')),
)  # fmt: skip
