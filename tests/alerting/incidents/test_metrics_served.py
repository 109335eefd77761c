"""The service serves what its families, and so docs/metrics.md, list."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from pyrometer_alerting.incidents.metrics import FAMILIES, GAUGES, POLICY_ACTIONS, Metrics


def served() -> dict[str, tuple[str, set[str]]]:
    """Type and labels by the name of the page, of a service that has something to say of everything."""
    metrics = Metrics()
    for counter in (value for value in vars(metrics).values() if hasattr(value, "labels")):
        if counter is not metrics.latency:
            counter.labels(*(f"some {name}" for name in counter._labelnames)).inc()
    kept = (*GAUGES, POLICY_ACTIONS)
    metrics.serve_gauges(lambda: {each.name: {tuple((name, "x") for name in each.labels): 1.0} for each in kept})
    found = {}
    for family in text_string_to_metric_families(metrics.render().decode()):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        if not name.endswith("_created"):  # the client library's: since when a counter counts
            found[name] = (family.type, {label for sample in family.samples for label in sample.labels} - {"le"})
    return found


def test_what_is_listed_is_what_is_served() -> None:
    assert served() == {family.name: (family.type, set(family.labels)) for family in FAMILIES}
    assert len({family.name for family in FAMILIES}) == len(FAMILIES) > 15
