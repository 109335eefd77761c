"""*Clusters* has a row for each cluster, and a fault of one is in its row alone, though both have the same names."""

from __future__ import annotations

from pathlib import Path

from tests.dashboards.planted import answer, expression, gives, healthy

OTHER = 'cluster="c2"'
# GPU 3 of a node is lost, and the exporter of another is silent: in the second cluster only.
FAULTS = {
    f'pyrometer_gpu_up{{{OTHER}, node="gpu-042", gpu="3", uuid="u-gpu-042-3"}}': "1x60 0x60",
    f'up{{job="node", {OTHER}, node="gpu-043", instance="gpu-043:9935"}}': "1x60 0x60",
}
TITLE = "Clusters: which needs somebody"
INCIDENT = 'pyrometer_incident_start_timestamp_seconds{cluster="%s", alert="%s", severity="%s", run="r", cause="%s"}'


def series() -> dict[str, str]:
    """Return two healthy clusters of the same names, with the faults in the second."""
    both = healthy() | {name.replace('cluster="c1"', OTHER): values for name, values in healthy().items()}
    incidents = {
        INCIDENT % ("c1", "NicLinkFlapping", "warning", "link"): "900x120",
        INCIDENT % ("c2", "TrainMfuLow", "warning", "old"): "0x120",
        INCIDENT % ("c2", "TrainStalled", "critical", "heat"): "600x120",
    }
    return both | FAULTS | incidents


def rows(query: int, **values: float) -> dict[str, object]:
    samples = ((f'{{cluster="{name}"}}', value) for name, value in values.items())
    return gives(f"max by (cluster) ({expression('clusters', TITLE, query)})", *samples)


def test_each_cluster_has_its_own_row(tmp_path: Path) -> None:
    cause = expression("clusters", TITLE, 8)
    named = [
        ('{cluster="c1", cause="link"}', 300),
        ('{cluster="c2", cause="heat"}', 600),
    ]
    tests = [
        rows(0, c1=3, c2=3),
        rows(1, c1=0, c2=1),
        rows(2, c1=6, c2=6),
        rows(3, c1=0, c2=1),
        rows(7, c1=1, c2=2),
        gives(cause, *named),
    ]
    assert answer(tmp_path, series(), tests) == ""
