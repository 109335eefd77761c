"""Our text must read back the same in the parsers of others."""

from __future__ import annotations

import math
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from pyrometer_exporters.framework.exposition import (
    MAX_LABEL_CHARACTERS,
    Renderer,
    escape_label,
    format_value,
    openmetrics,
    openmetrics_page,
)
from pyrometer_exporters.framework.metrics import Family, Sample, Series, columns_of
from pyrometer_simulator.stack.cache import cache_folder

GAUGE = Family("x_ratio", "gauge", 'Half of "it", \\ and\na second line.', ("a", "b"))
COUNTER = Family("x_events_total", "counter", "Events.", ("a",))
PLAIN = Family("x_up", "gauge", "Up.")

HOSTILE = [
    '"', "\\", "\n", "\\n", '\\"', "a\\", "\r\n", "\0", "\t", " ", "", "#", "{}", "a=b,c", "<!channel>", "</script>",
    "\U0001f525", "é", "\ud800", "\udcff", "\u2028", "\x85", "\ufeff", "x" * 10_000, "\U0001f525" * 300, '"' * 300,
]  # fmt: skip
LABELS = st.one_of(st.sampled_from(HOSTILE), st.text(max_size=20), st.text(st.characters(), max_size=8))
NUMBERS = st.one_of(st.floats(), st.integers(-(2**70), 2**70))


def expected(label: str) -> str:
    return label[:MAX_LABEL_CHARACTERS].encode("utf-8", "replace").decode()


def same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


@settings(max_examples=200)
@given(st.lists(st.tuples(LABELS, LABELS, NUMBERS), max_size=10))
def test_text_reads_back_the_same(rows: list[tuple[str, str, float]]) -> None:
    text = Renderer().text([GAUGE.sample(value, a, b) for a, b, value in rows])
    found = {}
    for family in parse_text(text.decode("utf-8")):
        assert family.documentation == GAUGE.help
        for sample in family.samples:
            key = (sample.labels["a"], sample.labels["b"])
            assert key not in found, "a series twice"
            found[key] = sample.value
    wanted: dict[tuple[str, str], float] = {}
    for a, b, value in rows:
        wanted.setdefault((expected(a), expected(b)), float(value))
    assert found.keys() == wanted.keys()
    assert all(same(float(found[key]), value) for key, value in wanted.items())


@settings(max_examples=200)
@given(st.lists(st.tuples(st.sampled_from(HOSTILE), NUMBERS), max_size=10), st.integers(1, 2**41))
def test_openmetrics_reads_back_the_same_with_its_timestamps(rows: list[tuple[str, float]], start: int) -> None:
    points = [Series(GAUGE, (a, ""), [(v, start + n)]) for n, (a, v) in enumerate(rows)]
    text = openmetrics(points).decode("utf-8")
    assert text.endswith("# EOF\n")
    found = [sample for family in parse_openmetrics(text) for sample in family.samples]
    assert len(found) == len(rows)
    by_series: dict[str, list[tuple[float, float]]] = {}
    for sample in found:
        by_series.setdefault(sample.labels["a"], []).append((float(sample.timestamp), sample.value))
    for label, seen in by_series.items():
        wanted = [(at / 1000, v) for p in points for v, at in p.points if expected(p.labels[0]) == label]
        assert len(seen) == len(wanted)
        for (stamp, value), (at, number) in zip(seen, wanted, strict=True):
            assert stamp == pytest.approx(at, abs=1e-4)
            assert same(float(value), float(number))


def test_openmetrics_names_a_counter_without_its_suffix() -> None:
    text = openmetrics([Series(COUNTER, ("x",), [(3, 1500)])]).decode()
    assert "# TYPE x_events counter\n" in text
    assert 'x_events_total{a="x"} 3 1.500\n' in text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (1.0, "1"), (-2.5, "-2.5"), (float("nan"), "NaN"), (float("inf"), "+Inf"), (float("-inf"), "-Inf"),
     (2**63, "9.223372036854776e+18"), (-(2**63), "-9.223372036854776e+18"), (-(2.0**63), "-9.223372036854776e+18"),
     (2**62, "4611686018427387904"), (1e300, "1e+300"), (0.1, "0.1"),
     (True, "1"), (-0.0, "0")],
)  # fmt: skip
def test_numbers_are_short_and_exact(value: float, text: str) -> None:
    assert format_value(value) == text


def test_one_byte_that_is_not_utf8_never_gets_out() -> None:
    odd = Family("x_odd", "gauge", "Help \ud800.", ("l",))
    Renderer().text([odd.sample(1, "\udcff")]).decode("utf-8")
    openmetrics([Series(odd, ("\udcff",), [(1, 1)])]).decode("utf-8")


def test_labels_are_cut_before_they_are_escaped() -> None:
    assert escape_label('"' * 10_000) == '\\"' * MAX_LABEL_CHARACTERS == '\\"' * 256


def test_two_label_sets_that_are_cut_to_one_are_one_series() -> None:
    samples = [GAUGE.sample(n, "x" * 300 + str(n), "\ud800" if n else "?") for n in range(2)]
    assert Renderer().text(samples).decode().count("\nx_ratio{") == 1


def test_a_series_given_twice_keeps_its_first_sample() -> None:
    text = Renderer().text([PLAIN.sample(1), PLAIN.sample(0)]).decode()
    assert text.endswith("gauge\nx_up 1\n")


def test_a_family_is_together_however_its_samples_come_and_whoever_defined_it() -> None:
    twin = Family("x_events_total", "counter", "The same name, from another collector.", ("a",))
    text = Renderer().text([COUNTER.sample(1, "1"), PLAIN.sample(1), twin.sample(2, "2"), COUNTER.sample(3, "3")])
    names = [line.split("{")[0].split()[0] for line in text.decode().splitlines() if not line.startswith("#")]
    assert names == ["x_events_total"] * 3 + ["x_up"]
    assert text.decode().count("# TYPE x_events_total") == 1


def test_points_of_a_series_stay_in_order_and_together() -> None:
    given = [Series(COUNTER, ("ab"[n % 2],), [(n, 1000 * n), (n + 2, 1000 * n + 2000)]) for n in (0, 1, 4, 5)]
    lines = [line for line in openmetrics(given).decode().splitlines() if not line.startswith("#")]
    assert [line.split()[-1] for line in lines] == [f"{n}.000" for n in (0, 2, 4, 6, 1, 3, 5, 7)]


@given(st.lists(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([0, 1, 1.0, 0.5, float("nan")])))))
def test_a_page_holds_nothing_of_earlier_scrapes(scrapes: list[list[tuple[str, float]]]) -> None:
    """Each scrape is as a new renderer writes it, whatever came, changed and went before."""
    renderer = Renderer()
    for scrape in scrapes:
        samples = [COUNTER.sample(value, label) for label, value in scrape]
        assert renderer.text(samples) == Renderer().text(samples)


def test_a_sample_with_the_wrong_number_of_labels_is_refused() -> None:
    with pytest.raises(ValueError, match="x_ratio has labels"):
        GAUGE.sample(1, "only one")


def test_promtool_accepts_the_text_format() -> None:
    promtool: Path = cache_folder() / "promtool/usr/bin/promtool"
    if not promtool.exists():
        pytest.skip(f"no promtool at {promtool}: `make stack` fetches it")
    samples: list[Sample] = [GAUGE.sample(n, label, "") for n, label in enumerate(HOSTILE)]
    text = Renderer().text([*samples, COUNTER.sample(1, "é"), PLAIN.sample(float("nan"))])
    done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, check=False, timeout=30)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@settings(max_examples=100)
@given(st.lists(st.tuples(LABELS, LABELS, NUMBERS), max_size=10))
def test_an_openmetrics_page_has_what_the_text_has(rows: list[tuple[str, str, float]]) -> None:
    dcgm = Family("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "counter", "Replays.", ("a",))
    taken = Family("x_events", "gauge", "A gauge with the name of a counter without its suffix.")
    samples = [
        *(GAUGE.sample(value, a, b) for a, b, value in rows),
        COUNTER.sample(3, "q"), taken.sample(1), dcgm.sample(4, "0"), PLAIN.sample(1),
    ]  # fmt: skip
    families = {family.name: family for family in parse_openmetrics(openmetrics_page(columns_of(samples)).decode())}
    types = {name: family.type for name, family in families.items() if name != GAUGE.name}
    assert types == {"x_events_total": "unknown", "x_events": "gauge", dcgm.name: "unknown", "x_up": "gauge"}
    text = Renderer().text(samples).decode()
    lines = {line for line in text.splitlines() if not line.startswith("#")}
    page = openmetrics_page(columns_of(samples)).decode()
    assert {line for line in page.splitlines() if not line.startswith("#")} == lines


def test_a_counter_of_an_openmetrics_page_is_a_counter_under_its_base_name() -> None:
    text = openmetrics_page(columns_of([COUNTER.sample(3, "q")])).decode()
    assert text.splitlines()[1:] == ["# TYPE x_events counter", 'x_events_total{a="q"} 3', "# EOF"]


def test_a_counter_of_an_openmetrics_page_that_is_named_like_none_is_of_no_known_type() -> None:
    plain = Family("x_events", "counter", 'Said "so".')
    text = openmetrics_page(columns_of([plain.sample(3)])).decode()
    assert text.splitlines() == ['# HELP x_events Said \\"so\\".', "# TYPE x_events unknown", "x_events 3", "# EOF"]


def test_a_help_text_that_is_not_utf8_spoils_no_page() -> None:
    family = Family("x_up", "gauge", "A \udcff.")
    series = [Series(family, (), [(1.0, 1000)])]
    pages = (
        Renderer().text([family.sample(1)]),
        openmetrics(series),
        openmetrics_page(columns_of([family.sample(1)])),
    )
    assert [page.splitlines()[0] for page in pages] == [b"# HELP x_up A ?."] * 3


def test_other_families_with_the_same_labels_make_another_page() -> None:
    first, second = Family("pyrometer_a", "gauge", "A."), Family("pyrometer_b", "gauge", "B.")
    renderer = Renderer()
    renderer.text([first.sample(1)])
    assert renderer.text([second.sample(1)]).endswith(b"\npyrometer_b 1\n")


def test_a_sample_with_too_few_labels_is_refused() -> None:
    family = Family("pyrometer_a", "gauge", "A.", ("run", "rank"))
    with pytest.raises(ValueError, match="shorter"):
        Renderer().text([Sample(family, ("r",), 1.0)])
