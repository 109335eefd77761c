"""Splitting rule groups: which expressions can be split, what the shards read, and the flags of the command."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pyrometer_dashboards.main import main
from pyrometer_dashboards.rule_shards import (
    by_patterns,
    by_racks,
    groups_of,
    pattern_of,
    restricted,
    split,
    whole_rules,
)
from pyrometer_dashboards.rule_stages import NotSplitError

RULES = Path(__file__).resolve().parents[2] / "alert_rules"
FILE = """\
# Of two groups.
groups:
  - name: first
    rules:
      - record: node:up
        expr: max by (node) (up)

      - alert: Down
        expr: |
          node:up == 0
          unless on (node) maintenance{kind="planned"}
        annotations: &words
          summary: "{{ $labels.node }} is down"
      - alert: DownLong
        expr: node:up == 0
        annotations: *words

  # Of nobody.
  - name: second
    rules:
      - record: ups
        expr: count(up)
"""


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        ("up", "up{M}"),
        ('up{job="node"} == 0', 'up{job="node", M} == 0'),
        ('up{job="node",} == 0', 'up{job="node",M} == 0'),
        ("{__name__=~\"x.*\"}", "{__name__=~\"x.*\", M}"),
        ("up{}", "up{M}"),
        ("rate(x_total[5m] offset 1h) > time() - 3600", "rate(x_total{M}[5m] offset 1h) > time() - 3600"),
        ("max by (node, gpu) (x)", "max by (node, gpu) (x{M})"),
        ("sum(x) without (gpu)", "sum(x{M}) without (gpu)"),
        ("max_over_time((x > 1)[5m:1m])", "max_over_time((x{M} > 1)[5m:1m])"),
        ("a + on (node) b", "a{M} + on (node) b{M}"),
        ("a * on (run) group_left (id) b", "a{M} * on (run) group_left (id) b"),
        ("b * on (node) group_right () a", "b{M} * on (node) group_right () a{M}"),
        ("a unless on (cluster) b", "a{M} unless on (cluster) b"),
        ("a and on (node) sum by (run) (b)", "a{M} and on (node) sum by (run) (b)"),
        ("a or b", "a{M} or b{M}"),
        ("a / scalar(sum(b))", "a{M} / scalar(sum(b))"),
        ("a and on () absent(b)", "a{M} and on () absent(b)"),
        ('label_replace(a, "rail", "$1", "gpu", "(.*)")', 'label_replace(a{M}, "rail", "$1", "gpu", "(.*)")'),
        ("a # of b\n> 1", "a{M} # of b\n> 1"),
    ],
)  # fmt: skip
def test_what_is_of_one_node_is_read_in_part_and_the_rest_whole(expr: str, expected: str) -> None:
    assert restricted(expr, "node", 'node=~"n1"') == expected.replace("M", 'node=~"n1"')


@pytest.mark.parametrize(
    ("expr", "why"),
    [
        ("sum(up)", "sum  () loses node"),
        ("max by (rack) (up)", "max by (rack) loses node"),
        ("count without (node) (up)", "count without (node) loses node"),
        ('count_values by (node) ("node", up)', "count_values by (node) loses node"),
        ("topk by (cluster) (3, up)", "topk by (cluster) loses node"),
        ("a + on (run) b", "+ on (run) loses node"),
        ("a or vector(0)", "a side of its `or` is of no single node"),
        ("a or on (run) b", "or on (run) loses node"),
        ("a * on (gpu) group_left (node) b", "* group_left (node) takes node from the other side"),
        ('label_replace(a, "node", "$1", "instance", "(.*)")', "label_replace() makes node"),
    ],
)
def test_what_is_of_several_nodes_is_not_split(expr: str, why: str) -> None:
    with pytest.raises(NotSplitError, match=re.escape(why)):
        restricted(expr, "node", 'node="n1"')


@pytest.mark.parametrize("expr", ["vector(1)", "absent(up)", "time()"])
def test_a_value_of_no_node_would_be_said_by_every_shard(expr: str) -> None:
    group = f"  - name: g\n    rules:\n      - record: r\n        expr: {expr}\n"
    with pytest.raises(NotSplitError, match="g: r: it has one value for all nodes"):
        whole_rules("g", group, "node")


def test_a_file_keeps_its_other_groups_and_comments() -> None:
    found = split(FILE, {"first": by_patterns("node", ["a.*", "ab.*"])})
    assert [name for name, _ in groups_of(found)] == ["first_1_of_3", "first_2_of_3", "first_3_of_3", "second"]
    assert found.startswith("# Of two groups.\ngroups:\n")
    assert found.endswith(FILE[FILE.index("  - name: second") :])
    assert found.count("# Of nobody.") == 3
    assert 'max by (node) (up{node=~"ab.*", node!~"a.*"})' in found
    assert 'maintenance{kind="planned", node!~"a.*|ab.*"}' in found
    assert re.findall(r"[&*]words\S*", found) == [f"{sign}words_{n}" for n in (1, 2, 3) for sign in "&*"]


def test_every_node_is_in_one_shard_also_one_that_is_not_listed() -> None:
    nodes = [f"gpu-{n:03d}" for n in range(40)]
    racks = {f"r{n:02d}": nodes[4 * n : 4 * n + 4] for n in range(10)}
    shards = by_racks(racks, 3)
    assert len(shards.matchers) == 3
    sizes = [0, 0, 0]
    for node in [*nodes, "", "new-1"]:
        at = [n for n, matcher in enumerate(shards.matchers) if _matches(matcher, node)]
        assert len(at) == 1
        sizes[at[0]] += 1
    assert sizes == [16, 12, 14]
    assert _matches(shards.matchers[-1], "new-1")


def _matches(matcher: str, value: str) -> bool:
    """Return whether a value passes all pieces of `node=~"..", node!~".."`."""
    pieces = re.findall(r'node(=~|!~)"((?:[^"\\]|\\.)*)"', matcher)
    return all((re.fullmatch(json.loads(f'"{text}"'), value) is not None) is (sign == "=~") for sign, text in pieces)


@pytest.mark.parametrize(
    ("values", "pattern"),
    [
        (["a"], "a"),
        (["gpu-1", "gpu-2", "gpu-3"], "gpu-[1-3]"),
        (["n1.example", "n3.example"], r"n[13]\.example"),
        (["a", "ab", "b-"], "(a(b)?|b-)"),
        (["x-", "x]", "x^"], r"x[\-\]\^]"),
    ],
)
def test_a_pattern_of_names_matches_them_alone(values: list[str], pattern: str) -> None:
    found = pattern_of(values)
    assert all(re.fullmatch(found, value) for value in values)
    assert not any(re.fullmatch(found, value + "0") for value in values)
    assert found.replace("b?", "(b)?") == pattern


def _targets(path: Path) -> Path:
    groups = [{"targets": [f"n{n}:9935"], "labels": {"node": f"n{n}", "rack": f"r{n // 2}"}} for n in range(6)]
    path.write_text(json.dumps(groups))
    return path


def test_the_command_splits_by_racks_and_runs(tmp_path: Path) -> None:
    targets = _targets(tmp_path / "nodes.json")
    flags = ["--shard=pyrometer_gpu_health", "--shard=pyrometer_train_straggler", f"--shard-racks={targets}=3"]
    assert main(["rules", str(RULES), str(tmp_path / "out"), *flags, "--shard-runs=llama.*"]) == 0
    health = (tmp_path / "out/gpu_health.rules.yaml").read_text()
    assert [name for name, _ in groups_of(health)][:3] == [f"pyrometer_gpu_health_{n}_of_3" for n in (1, 2, 3)]
    assert 'node=~"n[01]"' in health
    straggler = (tmp_path / "out/train_straggler.rules.yaml").read_text()
    assert 'run!~"llama.*"' in straggler
    for path in RULES.glob("*.rules.yaml"):
        if path.name not in ("gpu_health.rules.yaml", "train_straggler.rules.yaml"):
            assert (tmp_path / "out" / path.name).read_text() == path.read_text()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--shard=nosuch", "--shard-nodes=a"], "--shard: there is no group nosuch"),
        (["--shard=pyrometer_gpu_health"], "--shard needs --shard-nodes, --shard-racks or --shard-runs"),
        (["--shard=pyrometer_fleet_racks", "--shard-nodes=a"], "count by (cluster, rack) loses node"),
        (["--shard=pyrometer_gpu_health", "--shard-nodes=("], "--shard-nodes: '(': "),
        (["--shard-racks=nodes.json"], "'nodes.json' is not FILE=COUNT"),
        (["--shard-racks=/nonexistent=2"], "/nonexistent: No such file"),
        (["--shard-racks=/nonexistent=2", "--shard-nodes=a"], "--shard-racks and --shard-nodes: either"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], said: str
) -> None:
    assert main(["rules", str(RULES), str(tmp_path / "out"), *flags]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "said"), [("7", "no JSON list of targets"), ("[{}]", "no JSON list"), ("[]", "0 racks")]
)
def test_a_file_of_other_contents_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    (tmp_path / "nodes.json").write_text(text)
    flags = ["--shard=pyrometer_gpu_health", f"--shard-racks={tmp_path / 'nodes.json'}=2"]
    assert main(["rules", str(RULES), str(tmp_path / "out"), *flags]) == 2
    assert said in capsys.readouterr().err
