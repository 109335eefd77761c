"""The pages of a run in trackers, which the job or its tracker gave: W&B, MLflow."""

from __future__ import annotations

from pyrometer_kit.prometheus import Prometheus, PrometheusError
from pyrometer_kit.promql import quoted

MAX_LINKS = 4
# A run that died an hour ago is still asked about; its exporter forgets it after ten minutes.
WINDOW = "1h"


def run_links(prometheus: Prometheus, cluster: str, run: str, now: float) -> tuple[tuple[str, str], ...]:
    """Return (name, address) of the latest attempt's pages; none where Prometheus doesn't answer: no evidence."""
    where = f"{{cluster={quoted(cluster)},run={quoted(run)}}}"
    try:
        found = prometheus.instant(f"last_over_time(pyrometer_train_run_link_info{where}[{WINDOW}])", now)
    except PrometheusError:
        return ()
    by_age = sorted(found, key=lambda series: (int(series.labels.get("attempt") or 0), series.labels.get("url", "")))
    newest = {series.labels.get("name", ""): series.labels.get("url", "") for series in by_age}
    return tuple(sorted(newest.items())[:MAX_LINKS])
