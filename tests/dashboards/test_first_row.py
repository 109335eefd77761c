"""The first row says who is to blame also where the usual measure has nothing to say: a hang, a slow week, two runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.dashboards.planted import NODES, Series, answer, expression, gives, healthy, where

from pyrometer_simulator.stack import find_stack
from pyrometer_simulator.stack.promtool import objections

RANKS = [(node, gpu) for node in NODES for gpu in ("0", "1")]


OF_RUN = 'run="r", job_id="7", attempt="1"'
BATCH = f"{where('gpu-041')}, {OF_RUN}"
# A run that fell to three quarters of its MFU, and has been slow for longer than it was quick.
FALLEN = {
    f"pyrometer_train_batch_mfu_ratio{{{BATCH}}}": "0.4x50 0.3x70",
    f"pyrometer_train_batch_step_seconds{{{BATCH}}}": "15x120",
    f'pyrometer_train_run_info{{{BATCH}, model="m", world_size="6"}}': "1x120",
}


def standing(gone: int) -> Series:
    """Six ranks, of which one's process is gone after ten minutes, and the others wait for it."""
    found: Series = {}
    for rank, (node, _) in enumerate(RANKS):
        own = f'{where(node)}, {OF_RUN}, rank="{rank}"'
        steps = "0+15x40 600x80"
        found[f"pyrometer_train_steps_total{{{own}}}"] = steps
        found[f"pyrometer_train_step_seconds_total{{{own}}}"] = steps
        found[f"pyrometer_train_last_step{{{own}}}"] = steps
        found[f'pyrometer_train_step_part_seconds_total{{{own}, part="wait"}}'] = "0+3x40 120x80"
        found[f"pyrometer_train_rank_up{{{own}}}"] = "1x40 0x80" if rank == gone else "1x120"
        waits = "0.1x40 stale" if rank == gone else "0.1x40 0+15x80"
        found[f'pyrometer_train_current_part_seconds{{{own}, part="wait"}}'] = waits
    return found


@pytest.mark.parametrize(("board", "title"), [("overview", "Straggler"), ("training-run", "All wait for")])
def test_a_run_that_stands_still_names_who_fell_silent_first(board: str, title: str, tmp_path: Path) -> None:
    asked = f"max by (node, rank, who) ({expression(board, title, run='r')})"
    labels = '{node="gpu-043", rank="5", who="gpu-043 rank 5"}'
    assert answer(tmp_path, standing(gone=5), [gives(asked, (labels, 1))]) == ""


def died(first: int) -> dict[str, str]:
    """Return a run all of whose ranks die within eight seconds: one of an exception, the others of the launcher."""
    found = {}
    for rank, (node, _) in enumerate(RANKS):
        own = f'{where(node)}, {OF_RUN}, rank="{rank}"'
        found[f"pyrometer_train_rank_up{{{own}}}"] = "1x40 0x79"
        found[f"pyrometer_train_rank_start_timestamp_seconds{{{own}}}"] = "-900x119"
        found[f"pyrometer_train_rank_end_timestamp_seconds{{{own}}}"] = f"_x41 {602 if rank == first else 610}x78"
        found[f'pyrometer_train_current_part_seconds{{{own}, part="wait"}}'] = "0.1x40 stale"
    return found


@pytest.mark.parametrize(("board", "title"), [("overview", "Straggler"), ("training-run", "All wait for")])
def test_a_run_that_died_names_who_died_first(board: str, title: str, tmp_path: Path) -> None:
    asked = f"max by (node, rank, who) ({expression(board, title, run='r')})"
    labels = '{node="gpu-043", rank="5", who="gpu-043 rank 5 died first"}'
    assert answer(tmp_path, died(first=5), [gives(asked, (labels, 1))]) == ""


def test_the_rank_that_died_first_is_in_the_table_of_ranks(tmp_path: Path) -> None:
    asked = expression("training-run", "Where the ranks are now", run="r")
    labels = '{cluster="c1", node="gpu-043", run="r", job_id="7", rank="5", part="died first"}'
    assert answer(tmp_path, died(first=5), [gives(asked, (labels, 1200 - 602))]) == ""


def test_in_a_hang_the_rank_whose_process_is_gone_is_first_among_those_that_wait(tmp_path: Path) -> None:
    asked = expression("training-run", "Where the ranks are now", run="r")
    tests = [
        gives(
            f'({asked}) and on (part) label_replace(vector(1), "part", "gone", "", "")',
            ('{cluster="c1", node="gpu-043", run="r", job_id="7", rank="5", part="gone"}', 585),
        ),
        gives(f"count({asked})", ("{}", 6)),
        gives(f"max({asked})", ("{}", 585)),
    ]
    assert answer(tmp_path, standing(gone=5), tests) == ""


def test_steps_are_those_of_the_run_that_fell_and_not_of_the_slower_one(tmp_path: Path) -> None:
    other = f'{where("gpu-042")}, run="slow", attempt="1", rank="0"'
    # A tenth of a step a second all the time; the other's fell from one to a half.
    series = {
        f"pyrometer_train_steps_total{{{other}}}": "0+1.5x120",
        **{
            f'pyrometer_train_steps_total{{{where(node)}, {OF_RUN}, rank="{rank}"}}': "0+15x60 900+7.5x60"
            for rank, (node, _) in enumerate(RANKS)
        },
    }
    asked = expression("overview", "Steps", run=".+")
    labels = 'run:pyrometer_train_steps:rate1m{cluster="c1", run="r", job_id="7"}'
    assert answer(tmp_path, series, [gives(asked, (labels, 0.5))]) == ""


def test_mfu_is_compared_with_the_best_of_hours_where_the_week_knows_nothing_better(tmp_path: Path) -> None:
    asked = expression("overview", "MFU, 7 days", run=".+")
    assert answer(tmp_path, FALLEN, [gives(f"max by (run) ({asked})", ('{run="r"}', 0.75), at="29m")]) == ""


@pytest.mark.parametrize(("title", "value"), [("MFU now", 0.3), ("Of its best", 0.75)])
def test_a_checkpoint_does_not_make_the_mfu_unknown(title: str, value: float, tmp_path: Path) -> None:
    tagged = {f'pyrometer_train_batch_tag{{{BATCH}, tag="checkpoint"}}': "_x112 1x8"}
    asked = f"round({expression('training-run', title, run='r')}, 0.01)"
    assert answer(tmp_path, FALLEN | tagged, [gives(asked, ("{}", value), at="29m")]) == ""


def test_a_node_that_does_not_answer_is_named_and_else_all_answer(tmp_path: Path) -> None:
    asked = expression("overview", "Nodes")
    dead = {'up{job="node", cluster="c1", node="gpu-042", instance="gpu-042:9935"}': "1x60 0x60"}
    for series, who, share in (({}, "all answer", 1), (dead, "gpu-042", 2 / 3)):
        labels = f'{{cluster="c1", who="{who}"}}'
        assert answer(tmp_path, series, [gives(asked, (labels, share))]) == ""


def test_critical_and_warning_alerts_are_counted_apart(tmp_path: Path) -> None:
    dead = {'up{job="node", cluster="c1", node="gpu-042", instance="gpu-042:9935"}': "1x60 0x60"}
    for query, count in ((0, 0), (1, 1)):
        asked = expression("overview", "Alerts", query)
        assert answer(tmp_path, dead, [gives(asked, ("{}", count))]) == ""


def test_a_run_that_stands_still_loses_all_of_its_gpus_and_a_slow_one_its_share(tmp_path: Path) -> None:
    asked = expression("alerts", "Harm")
    for series, lost in ((standing(gone=5), 1), (FALLEN, 0.25), ({}, None)):
        samples = [] if lost is None else [("{}", lost)]
        assert answer(tmp_path, series, [gives(f"round({asked}, 0.01)", *samples, at="29m")]) == ""


def test_the_fabrics_table_names_a_flap_before_the_history_has_it(tmp_path: Path) -> None:
    port = f'{where("gpu-042")}, device="mlx5_3", port="1"'
    asked = expression("fabric", "Ports that lost their link in the range")
    series = {
        f"port:pyrometer_nic_link_down_events:increase10m{{{port}}}": "17x120",
        f'port:pyrometer_nic:rail{{{port}, rail="3", switch="leaf-3"}}': "1x120",
    }
    labels = '{node="gpu-042", device="mlx5_3", port="1", rail="3", switch="leaf-3"}'
    test = gives(asked, (labels, 17))
    inputs = [{"series": name, "values": values} for name, values in series.items()]
    path = tmp_path / "live.yaml"
    path.write_text(json.dumps({"tests": [{"interval": "15s", "input_series": inputs, "promql_expr_test": [test]}]}))
    assert objections(find_stack().promtool, "test", "rules", path) == ""


LOST = {
    f'pyrometer_gpu_up{{{where("gpu-042")}, gpu="3", uuid="u-gpu-042-3"}}': "1x60 0x60",
    f'pyrometer_gpu_info{{{where("gpu-042")}, gpu="3", uuid="u-3", pci_bus_id="0000:48:00.0", serial="1654"}}': "1x120",
    f'pyrometer_down_reason_info{{{where("gpu-042")}, collector="gpu", part="3", reason="gpu_is_lost"}}': "_x60 1x60",
}


def test_a_nodes_board_says_which_gpu_is_lost_with_its_address_and_serial_number(tmp_path: Path) -> None:
    table = "GPUs that don't answer"
    row = '{gpu="3", pci_bus_id="0000:48:00.0", serial="1654"}'
    tests = [
        gives(expression("node", "GPUs missing"), ('{who="GPU 3"}', 1)),
        gives(expression("node", table), (row, 1)),
        gives(expression("node", table, 1), ('{gpu="3", reason="gpu_is_lost"}', 1)),
    ]
    tests[0]["expr"] = f"max by (who) ({tests[0]['expr']})"
    assert answer(tmp_path, LOST, tests) == ""


def test_several_lost_gpus_are_counted_and_none_is_said_so(tmp_path: Path) -> None:
    both = {f'pyrometer_gpu_up{{{where("gpu-042")}, gpu="{gpu}", uuid="u-gpu-042-{gpu}"}}': "1x60 0x60" for gpu in "23"}
    asked = f"max by (who) ({expression('node', 'GPUs missing')})"
    for series, who, count in ((both, "GPUs", 2), ({}, "of its GPUs", 0)):
        samples = [(f'{{who="{who}"}}', count)]
        assert answer(tmp_path, series, [gives(asked, *samples)]) == ""


@pytest.mark.parametrize(
    ("series", "who", "value"), [(standing(gone=5), "r is stopped", 1), (died(first=5), "r died here", 1)]
)
def test_a_node_that_a_run_waits_for_is_not_without_training(
    series: Series, who: str, value: float, tmp_path: Path
) -> None:
    asked = f"max by (who) ({expression('node', 'The others wait for', node='gpu-043')})"
    assert answer(tmp_path, series, [gives(asked, (f'{{who="{who}"}}', value))]) == ""


def test_a_node_with_ranks_that_take_no_step_yet_is_not_without_training(tmp_path: Path) -> None:
    asked = f"max by (who) ({expression('node', 'The others wait for')})"
    tests = [gives(asked, ('{who="no step now"}', -1))]
    assert answer(tmp_path, {name: "_x120" for name in healthy() if "pyrometer_train_step" in name}, tests) == ""


def cause(part: str, why: str, since: int) -> Series:
    """Return the series of an open incident of the run that blames a part, such as ``gpu-042 GPU 3``."""
    node, _, gpu = part.partition(" GPU ")
    named = f'id="{part}", alert="TrainStraggler", run="r", job_id="7", part="{part}", node="{node}", gpu="{gpu}"'
    return {f'pyrometer_incident_start_timestamp_seconds{{cluster="c1", {named}, cause="{why}"}}': f"{since}x120"}


HOT = cause("gpu-041 GPU 2", "throttled by heat", 0)
SLOWER = cause("gpu-042 GPU 3", "slower than its stage", 600)
RANK = f'{where("gpu-042")}, {OF_RUN}, rank="3"'
LATE = {f'pyrometer_train_step_part_seconds_total{{{RANK}, part="wait"}}': "0x120"}


@pytest.mark.parametrize(
    ("series", "told", "seconds"),
    [
        (LATE | SLOWER, "slower than its stage", 600),
        # The hot GPU's incident is older, but the run waits for the other one.
        (LATE | HOT | SLOWER, "slower than its stage", 600),
        (LATE | HOT, "gpu-041 GPU 2: throttled by heat", 1200),
        (standing(gone=5) | cause("gpu-043", "the node is silent", 600) | HOT, "the node is silent", 600),
        (LATE | cause("", "evaluation", 600), "evaluation", 600),
    ],
)
def test_the_cause_beside_the_awaited_part_is_its_own_or_names_its_part(
    series: Series, told: str, seconds: int, tmp_path: Path
) -> None:
    asked = expression("overview", "Runs: who waits for whom, and why", 4, run="r")
    assert answer(tmp_path, series, [gives(asked, (f'{{run="r", job_id="7", cause="{told}"}}', seconds))]) == ""


STEADY = {
    f"pyrometer_train_batch_mfu_ratio{{{BATCH}}}": "0.3x120",
    f"pyrometer_train_batch_step_seconds{{{BATCH}}}": "15x120",
    f'pyrometer_train_run_info{{{BATCH}, model="m", world_size="6"}}': "1x120",
}


def test_a_run_below_what_its_job_expects_is_not_at_its_best(tmp_path: Path) -> None:
    hoped = {f"pyrometer_train_expected_mfu_ratio{{{BATCH}}}": "0.4x120"}
    row = expression("overview", "Runs: who waits for whom, and why", 2, run="r")
    tests = [
        gives(f"round({asked}, 0.01)", (labels, share), at="29m")
        for asked, labels, share in ((row, '{run="r", job_id="7"}', 0.75), (expression("alerts", "Harm"), "{}", 0.25))
    ]
    assert answer(tmp_path, STEADY | hoped, tests) == ""


@pytest.mark.parametrize(
    ("series", "share"),
    [
        (STEADY, 1),
        # It has waited for the rank since it began, so that its best is no better.
        (STEADY | LATE, 0.8),
        # It was quicker: its best says more than the rank.
        (FALLEN | LATE, 0.75),
    ],
)
def test_a_run_that_has_waited_since_it_began_is_not_at_its_best(series: Series, share: float, tmp_path: Path) -> None:
    row = expression("overview", "Runs: who waits for whom, and why", 2, run="r")
    tile, harm = expression("overview", "MFU, 7 days", run=".+"), expression("alerts", "Harm")
    tests = [
        gives(f"round({asked}, 0.01)", (labels, share), at="29m")
        for asked, labels in (
            (row, '{run="r", job_id="7"}'),
            (expression("training-run", "Of its best", run="r"), "{}"),
            (f"max by (run) ({tile})", '{run="r"}'),
            (f"1 - ({harm})", "{}"),
        )
    ]
    assert answer(tmp_path, series, tests) == ""
