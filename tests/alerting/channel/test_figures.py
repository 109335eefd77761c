from __future__ import annotations

import struct
from typing import Any

import pandas as pd
import pytest
from alerting_fakes import START, FakePrometheus, training_incident
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from pyrometer_alerting.channel.drop_data import DropPicture, Line, band, drop_picture_of, risen, stretches
from pyrometer_alerting.model.incident import Cause, ChartCurve, Diagnosis
from pyrometer_kit.prometheus import Series

pytest.importorskip("matplotlib", reason="pictures need Matplotlib (the alerting extra)")

HEAT = Cause("gpu-042 GPU 3", "hardware thermal throttling", labels={"node": "gpu-042", "gpu": "3"})
FLAP = Cause("gpu-174 mlx5_5/1", "link flapping", labels={"node": "gpu-174", "device": "mlx5_5", "port": "1"})
CURVE = ChartCurve((START, START + 1), (0.4, 0.3), (0.4, 0.3), 0.42)


def draw(drop: DropPicture) -> bytes:
    from pyrometer_alerting.channel.figures import draw as drawn

    return drawn(drop)


def size(png: bytes) -> tuple[int, ...]:
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    return struct.unpack(">II", png[16:24])


def series(*values: float, step: float = 5.0) -> list[Series]:
    return [Series({}, tuple((START - 600 + step * index, value) for index, value in enumerate(values)))]


def cluster() -> FakePrometheus:
    prometheus = FakePrometheus()
    times = [START - 600 + index for index in range(700)]
    points = tuple((time, 0.4 if time < START else 0.3) for time in times)
    prometheus.on("mfu_ratio", [Series({"attempt": "0"}, points)])
    prometheus.on("max.*SM_CLOCK", series(*[1980.0] * 120, *[1200.0] * 20))
    prometheus.on("SM_CLOCK", series(*[1980.0] * 140))
    prometheus.on("clock_event", series(*[0.0] * 120, *range(20)))
    prometheus.on("link_down", series(*[0.0] * 120, 1, 1, 2, 2))
    return prometheus


def drop(*causes: Cause) -> DropPicture:
    incident = training_incident(diagnosis=Diagnosis(START + 6, causes, onset=START, curve=CURVE))
    found = drop_picture_of(cluster(), incident, START + 100)
    assert found is not None
    return found


def test_the_picture_of_a_hot_gpu_has_its_clock_and_the_time_it_was_throttled() -> None:
    found = drop(HEAT)
    assert found.title == "llama-70b 27 % slower: gpu-042 GPU 3, hardware thermal throttling"
    assert [line.name for line in found.lines] == ["its clock", "node's median"]
    assert found.throttled == ((START, START + 95),)
    assert len(found.at) == 700
    assert size(draw(found)) == (1280, 720)


def test_the_picture_of_a_link_has_the_times_it_went_down() -> None:
    found = drop(FLAP)
    assert found.downs == (START, START + 10)
    assert size(draw(found)) == (1280, 720)


def test_without_a_culprit_the_batches_stand_alone() -> None:
    found = drop()
    assert (found.culprit, found.lines, found.downs) == ("", (), ())
    assert size(draw(found)) == (1280, 720)


def test_there_is_no_picture_without_a_curve_or_batches() -> None:
    assert drop_picture_of(cluster(), training_incident(), START) is None
    incident = training_incident(diagnosis=Diagnosis(START, curve=CURVE))
    assert drop_picture_of(FakePrometheus(), incident, START) is None


def test_the_band_is_where_the_batches_lay_before() -> None:
    frame = pd.DataFrame({"at": [START - n for n in range(100)], "mfu": [0.4] * 50 + [0.41] * 50, "tagged": False})
    assert band(frame, START + 1, 0.5) == pytest.approx((0.4, 0.41))
    assert band(frame, START - 95, 0.5) == pytest.approx((0.485, 0.515))


def test_neighbouring_rises_are_one_stretch() -> None:
    assert stretches(series(0, 1, 2, 2, 2, 2, 3), 5.0) == ((START - 600, START - 590), (START - 575, START - 570))
    assert risen([]) == ()


hostile = st.text(max_size=120) | st.sampled_from(
    ["$\\frac{", "$x^$", "\u202egpj", "日本語" * 40, "😀" * 50, "\n" * 9, "%s"]
)


@settings(max_examples=12, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(
    texts=st.lists(hostile, min_size=4, max_size=4),
    mfu=st.lists(st.floats(0, 2), min_size=1, max_size=30),
    begin=st.floats(-100, 100),
)
def test_hostile_labels_and_odd_values_are_drawn(texts: list[str], mfu: list[float], begin: float) -> None:
    title, subtitle, culprit, name = texts
    at = tuple(START + index for index in range(len(mfu)))
    odd: Any = DropPicture(
        title,
        subtitle,
        at,
        tuple(mfu),
        tuple(index % 3 == 0 for index in range(len(mfu))),
        0.4,
        (0.39, 0.41),
        START + begin,
        None,
        at[-1],
        culprit,
        (Line(name, name, at, tuple(mfu)),),
        ((START, START + 5),),
        (START,),
    )
    assert size(draw(odd)) == (1280, 720)
