"""Playing the scenario: waits, faults, recovery, and a look at the channel all the while."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pyrometer_simulator.demo import faults, nccl_job, scenario, verdict
from pyrometer_simulator.demo.cluster import Cluster
from pyrometer_simulator.demo.hardware import Node
from pyrometer_simulator.demo.observe import Prometheus, SlackView, incidents
from pyrometer_simulator.demo.orders import Orders
from pyrometer_simulator.demo.processes import DemoError, Processes
from pyrometer_simulator.demo.topology import CHANNEL, RUN
from pyrometer_simulator.demo.verdict import Report

TICK_SECONDS = 0.1
TRAFFIC_SECONDS = 1.0
START_SECONDS = 60.0
# One scrape interval and a bit: by then Prometheus has every batch of a minute that ended so long ago.
SETTLE_SECONDS = 7.0


@dataclass
class Director:
    """Plays the scenario once; ``say`` prints a line for people."""

    nodes: dict[str, Node]
    prometheus: Prometheus
    slack: SlackView
    alerting_url: str
    processes: Processes
    say: Callable[[str], None]
    start_seconds: float = START_SECONDS
    cluster: Cluster | None = None
    report: Report = field(default_factory=Report)
    _traffic_at: float = field(default_factory=time.monotonic)
    _watchers: list[Callable[[], None]] = field(default_factory=list)

    def watch(self, look: Callable[[], None]) -> None:
        """Call a function about once a second, as long as the machine room is alive."""
        self._watchers.append(look)

    def play(self) -> Report:
        """Play the whole scenario and report what the channel showed. Raises DemoError if a program ends."""
        self._wait_for_first_batches()
        start = time.time()
        self._pulse()
        self._pass_until(start + scenario.FLAP_AT)
        self._flap()
        self._pass_until(start + scenario.HANG_AT)
        self._hang()
        self._wait_for_baseline(start + scenario.BUSY_BASELINE_SECONDS)
        self._heat()
        self._wait_for_resolves()
        # The rules held their alerts for longer than a minute, in which nothing happened.
        self.report.measured |= verdict.batches_measured(self.prometheus, RUN, time.time() - SETTLE_SECONDS)
        self.report.measured |= verdict.short_events_measured(self.prometheus)
        messages = self._messages()
        self.report.measured |= {
            "out_of_order_samples": self._out_of_order(),
            "slack_calls": float(len(self.slack.calls)),
        }
        self.report.problems = verdict.problems_of(self.report, messages, scenario.FLAPS)
        return self.report

    def idle(self) -> None:
        """Keep the machine room alive for one tick."""
        now = time.monotonic()
        if now - self._traffic_at >= TRAFFIC_SECONDS:
            for node in self.nodes.values():
                node.traffic(now - self._traffic_at)
            self._traffic_at = now
            self.processes.check()
            for look in self._watchers:
                look()
        self._look()
        time.sleep(TICK_SECONDS)

    def _wait_for_first_batches(self) -> None:
        deadline = time.time() + self.start_seconds
        while not self.prometheus.values(f'pyrometer_train_batch_mfu_ratio{{run="{RUN}"}}'):
            if time.time() > deadline:
                msg = f"no batch of run {RUN} reached Prometheus in {self.start_seconds:.0f} s: see its /targets page"
                raise DemoError(msg)
            self.idle()
        self.say(f"run {RUN} trains on 48 GPUs at 41 % MFU; now faults are planted, and the channel is watched")

    def _wait_for_baseline(self, deadline: float) -> None:
        asked = f'max(run:pyrometer_train_batch_step:config_batches3h{{run="{RUN}"}})'
        while (self.prometheus.value(asked) or 0) < scenario.BASELINE_BATCHES and time.time() < deadline:
            self._pass(1)

    def _pulse(self) -> None:
        gpu = self.nodes[scenario.PULSE_NODE].gpus[scenario.PULSE_GPU]
        gpu.pulse("hw_thermal", seconds=scenario.PULSE_SECONDS, delay=scenario.PULSE_AT)
        self.say(
            f"planted: {scenario.PULSE_NODE} GPU {scenario.PULSE_GPU} slows down for 0.2 s, between two looks at it: "
            "too short for a message, but to be counted"
        )

    def _hang(self) -> None:
        self.say(
            f"planted: rank {scenario.HUNG_RANK} of job {scenario.HUNG_JOB} hangs, and 15 others wait for it; that job "
            "has no line of Pyrometer in it"
        )
        self._expect("hang")
        self._orders.give(str(scenario.HUNG_RANK))

    def _flap(self) -> None:
        name, device = scenario.FLAPPING_NODE, scenario.FLAPPING_DEVICE
        self.say(f"planted: {name} {device} loses its link three times, a second each")
        for number, pause in enumerate(faults.flap(self.nodes[name], name, device, self.cluster)):
            if number == 2 * (scenario.FLAPS - 1):  # pauses while it is down, and between
                self._expect("third flap")
            self._pass(pause)

    def _heat(self) -> None:
        place = f"{scenario.HOT_NODE} GPU {scenario.HOT_GPU}"
        self.say(f"planted: {place} overheats: 1980 MHz become {scenario.HOT_CLOCK_MHZ}, and all 48 ranks wait for it")
        self._expect("heat")
        for pause in faults.heat(self.nodes[scenario.HOT_NODE].gpus[scenario.HOT_GPU]):
            self._pass(pause)
        self.say(f"{place} has cooled down; a message ends after a minute or two of quiet, in case it comes back")

    def _wait_for_resolves(self) -> None:
        start = time.time()
        deadline = start + scenario.RESOLVE_SECONDS
        while any(f.resolved_at is None for f in self.report.findings) and time.time() < deadline:
            if time.time() > start + scenario.POST_SECONDS and not self._all_named():
                return  # a message that hasn't come by now never will: say so at once
            if self._run_is_slow():
                deadline = min(time.time() + scenario.RESOLVE_SECONDS, start + scenario.BUSY_RESOLVE_SECONDS)
            self.idle()

    def _run_is_slow(self) -> bool:
        pace = self.prometheus.value(f'rate(pyrometer_train_steps_total{{run="{RUN}", rank="0"}}[30s])')
        return pace is not None and pace < scenario.SLOW_STEPS_PER_SECOND

    def _all_named(self) -> bool:
        return all(finding.named_at is not None for finding in self.report.findings)

    @property
    def _orders(self) -> Orders:
        return Orders(next(iter(self.nodes.values())).folder.parent, nccl_job.NAME)

    def _expect(self, fault: str) -> None:
        self.report.findings += verdict.expected_findings(fault, time.time())

    def _look(self) -> None:
        open_findings = [finding for finding in self.report.findings if finding.resolved_at is None]
        if not open_findings:
            return
        messages = self._messages()
        for finding in open_findings:
            named = finding.named_at
            verdict.look_for(finding, messages)
            if named is None and finding.named_at is not None:
                self.say(f"told after {finding.seconds:.1f} s: {verdict.headline(finding, messages)}")
                if finding.fault == "hang":
                    self.say(f"job {scenario.HUNG_JOB} is cancelled, as somebody would who reads that")
                    self._orders.give("end")
                    if self.cluster is not None:
                        self.cluster.cancel(scenario.HUNG_JOB)
            if finding.resolved_at is not None:
                self.say(f"told: {verdict.headline(finding, messages)}")

    def _messages(self) -> list[dict[str, Any]]:
        """Return the channel's messages about incidents, each with its alerts."""
        return verdict.about_incidents(self.slack.messages(CHANNEL), incidents(self.alerting_url))

    def _out_of_order(self) -> float | None:
        return self.prometheus.value("prometheus_target_scrapes_sample_out_of_order_total")

    def _pass(self, seconds: float) -> None:
        self._pass_until(time.time() + seconds)

    def _pass_until(self, when: float) -> None:
        while time.time() < when:
            self.idle()
