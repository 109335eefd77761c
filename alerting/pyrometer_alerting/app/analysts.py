"""The workers that look at runs and days beside the messages: signatures, pictures, digests."""

from __future__ import annotations

import threading
from collections.abc import Callable

from pyrometer_alerting.app.watch import SignatureWatch
from pyrometer_alerting.deliver.gallery import Gallery
from pyrometer_alerting.deliver.illustrator import Illustrator
from pyrometer_alerting.deliver.slack import Slack
from pyrometer_alerting.digest.herald import Herald
from pyrometer_alerting.digest.pictures import DigestPictures
from pyrometer_alerting.digest.schedule import Digests
from pyrometer_alerting.render.messages import Style
from pyrometer_alerting.state.metrics import Metrics
from pyrometer_alerting.state.store import Store
from pyrometer_kit.clock import Clock
from pyrometer_kit.prometheus import Prometheus


class Analysts:
    """Each in its own thread; without a Prometheus there are only digests of the incidents."""

    def __init__(
        self,
        store: Store,
        slack: Slack,
        prometheus: Prometheus | None,
        digests: Digests,
        *,
        style: Style,
        clock: Clock,
        metrics: Metrics,
        changed: Callable[[], None],
    ) -> None:
        self._stopping = threading.Event()
        gallery = Gallery(slack, self._stopping.wait)
        pictures = DigestPictures(store, gallery, charts=style.charts, clock=clock, changed=changed)
        self.herald = Herald(store, digests, style=style, clock=clock, changed=changed, pictures=pictures)
        self._workers: list[Herald | SignatureWatch | Illustrator] = [self.herald]
        if prometheus is not None:
            watch = SignatureWatch(prometheus, clock=clock, metrics=metrics)
            metrics.serve_gauges(lambda: {"pyrometer_run_signature": watch.gauge()})
            charts = style.charts
            illustrator = Illustrator(
                store, gallery, prometheus, charts=charts, clock=clock, metrics=metrics, changed=changed
            )
            self._workers += [watch, illustrator]

    def targets(self) -> list[Callable[[], None]]:
        """What the threads run."""
        return [worker.run for worker in self._workers]

    def stop(self) -> None:
        """Let them all return."""
        self._stopping.set()
        for worker in self._workers:
            worker.stop()
