"""Mutation testing of the modules that must not be wrong: does a test fail for every change of their code?

    python tools/mutate.py [SUBJECT...] [--jobs 2] [--sample 50] [--again] [--write FILE]

A mutant is one change of one expression or statement. A child of this process, forked after the libraries are imported,
imports the changed module in place of the real one and runs the module's own tests until the first failure; a mutant
that no test notices has survived. EQUIVALENT lists survivors that no test can tell from the original, each with the
reason. (mutmut and cosmic-ray start a process for each mutant, or need the sources of one package in one place.)
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import importlib.abc
import importlib.util
import io
import json
import os
import queue
import re
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tools.mutate_subjects import SUBJECTS, Subject, version_of  # noqa: E402

if TYPE_CHECKING:
    from pyrometer_simulator.postgres import Pair

EQUIVALENT = Path(__file__).with_name("mutate_equivalent.json")
LIBRARIES = ("hypothesis", "numpy", "pandas", "prometheus_client", "prometheus_client.openmetrics.parser", "pytest",
             "requests", "slack_sdk", "sqlite3", "yaml", "pyrometer_simulator.postgres")  # fmt: skip
_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Div, ast.Mod: ast.Mult,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
# In texts with spaces, which are queries in the modules of SUBJECTS, or help texts, which lack these words.
SQL = {
    " AND ": " OR ", " NOT ": " ", " DESC": "", " >= ": " > ", " < ": " <= ", " > ": " >= ", "min(": "max(",
    "coalesce(posted_at, ?)": "?", "wanted + 1": "wanted", "attempts + 1": "attempts", "attempts - ?": "attempts",
    " = 0": " = 1", "THEN 0": "THEN 1", "'done'": "'dead'", "'ready'": "'done'", "'sending'": "'lookup'",
    "'lookup'": "'sending'", "'root'": "'reply'", "'reply'": "'root'", "= NULL": "= ''", "LIMIT ?": "LIMIT 1 + ?",
    "OR REPLACE": "OR IGNORE", "ORDER BY due": "ORDER BY due DESC", "ORDER BY seq": "ORDER BY seq DESC",
    "not_before, seq": "seq, not_before",
}  # fmt: skip
SKIPPED_CALLS = ("_log", "log", "Family", "NamedTuple")
MAX_SHOWN = 80
SAMPLE_SEED = 1
LEAST_SECONDS, PATIENCE = 20.0, 6.0  # a mutant may loop: it has this many times the tests' own time


@dataclass(frozen=True)
class Mutant:
    """One change: the line, its function, its description, and the changed source."""

    line: int
    function: str
    change: str
    source: str

    @property
    def name(self) -> str:
        """The name in EQUIVALENT: lines move, and another function's change of the same words is another change."""
        return f"{self.function}: {self.change}"


def mutants_of(source: str) -> Iterator[Mutant]:
    """Yield every mutant of a module's source."""
    tree = ast.parse(source)
    functions = _functions(tree)
    for node in [node for node in _code(tree) if hasattr(node, "lineno")]:
        before = ast.unparse(node).partition("\n")[0]
        for changed in _changes(node):
            mutated = _replaced(tree, node, changed)
            change = _difference(before, ast.unparse(changed).partition("\n")[0])
            function = functions.get(node.lineno, "module")
            yield Mutant(node.lineno, function, change, ast.unparse(ast.fix_missing_locations(mutated)))


def _functions(tree: ast.Module) -> dict[int, str]:
    """Return the innermost function of each line that is in one."""
    found = {}
    for node in ast.walk(tree):  # outer ones first
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.update(dict.fromkeys(range(node.lineno, (node.end_lineno or node.lineno) + 1), node.name))
    return found


def _difference(before: str, after: str) -> str:
    """Return both; of long texts, which are queries, the place where they differ."""
    if len(before) <= MAX_SHOWN:
        return f"{before}  ->  {after}"
    same = next(
        (at for at, (old, new) in enumerate(zip(before, after, strict=False)) if old != new),
        min(len(before), len(after)),
    )
    start = max(0, same - MAX_SHOWN // 2)
    return f"...{before[start : same + MAX_SHOWN // 2]}...  ->  ...{after[start : same + MAX_SHOWN // 2]}..."


def _code(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that run: no annotations, docstrings, messages to people, families of metrics or assertions."""
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or name in ("annotation", "returns", "decorator_list", "type_comment"):
                continue
            if isinstance(child, ast.Assert | ast.Raise | ast.JoinedStr | ast.Import | ast.ImportFrom):
                continue
            if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
                continue
            if isinstance(child, ast.Assign) and ast.unparse(child.targets[0]) == "__all__":
                continue
            if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
                continue
            if isinstance(child, ast.Subscript) and ast.unparse(child.value) == "Literal":
                continue
            call = child.value if isinstance(child, ast.Expr) else child
            called = call.func if isinstance(call, ast.Call) else None
            if called is not None and ast.unparse(called).partition(".")[0] in SKIPPED_CALLS:
                continue
            yield child
            yield from _code(child)


def _changes(node: ast.AST) -> Iterator[ast.AST]:
    changed = copy.deepcopy(node)
    if isinstance(changed, ast.Compare) and type(changed.ops[0]) in _COMPARISONS:
        changed.ops[0] = _COMPARISONS[type(changed.ops[0])]()
        yield changed
    elif isinstance(changed, ast.BinOp | ast.AugAssign) and type(changed.op) in _ARITHMETIC:
        changed.op = _ARITHMETIC[type(changed.op)]()
        yield changed
    elif isinstance(changed, ast.BoolOp):
        changed.op = ast.Or() if isinstance(changed.op, ast.And) else ast.And()
        yield changed
    elif isinstance(changed, ast.UnaryOp) and isinstance(changed.op, ast.Not):
        yield changed.operand
    elif isinstance(changed, ast.If | ast.While | ast.IfExp):
        changed.test = ast.UnaryOp(ast.Not(), changed.test)
        yield changed
    elif isinstance(changed, ast.Constant):
        yield from _constants(changed)
    elif isinstance(changed, ast.Return) and changed.value is not None and ast.unparse(changed.value) != "None":
        yield ast.copy_location(ast.Return(ast.Constant(None)), node)
    elif isinstance(changed, ast.Break | ast.Continue):
        yield ast.copy_location(ast.Continue() if isinstance(changed, ast.Break) else ast.Break(), node)
    elif isinstance(changed, ast.Expr | ast.AugAssign | ast.Delete) and not isinstance(node, ast.AugAssign):
        yield ast.copy_location(ast.Pass(), node)


def _constants(node: ast.Constant) -> Iterator[ast.AST]:
    value = node.value
    if isinstance(value, bool):
        yield ast.copy_location(ast.Constant(not value), node)
    elif isinstance(value, int | float):
        yield ast.copy_location(ast.Constant(value + 1), node)
    elif isinstance(value, str) and value and " " not in value:
        yield ast.copy_location(ast.Constant(f"{value}XX"), node)
    elif isinstance(value, str) and "CREATE TABLE" not in value:
        for word, other in SQL.items():
            for found in re.finditer(re.escape(word), value):
                changed = value[: found.start()] + other + value[found.end() :]
                yield ast.copy_location(ast.Constant(changed), node)


def _replaced(tree: ast.Module, old: ast.AST, new: ast.AST) -> ast.Module:
    class Replace(ast.NodeTransformer):
        """Puts the new node in the old one's place."""

        def visit(self, node: ast.AST) -> ast.AST:
            return new if node is old else super().visit(node)

    # The transformer changes lists in place: only the tree around the node is copied.
    return Replace().visit(_shallow(tree, old))


def _shallow(node: ast.AST, kept: ast.AST) -> ast.AST:
    if node is kept:
        return node
    fields = {}
    for name, value in ast.iter_fields(node):
        if isinstance(value, list):
            fields[name] = [_shallow(item, kept) if isinstance(item, ast.AST) else item for item in value]
        else:
            fields[name] = _shallow(value, kept) if isinstance(value, ast.AST) else value
    return ast.copy_location(type(node)(**fields), node)


class _Mutated(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from other source."""

    def __init__(self, name: str, source: str, path: Path) -> None:
        self._name, self._source, self._path = name, source, path

    def find_spec(self, fullname: str, path: object, target: object = None) -> object:  # noqa: ARG002
        """Find the one module."""
        found = (
            importlib.util.spec_from_loader(fullname, self, origin=str(self._path)) if fullname == self._name else None
        )
        if found is not None:
            found.has_location = True
        return found

    def exec_module(self, module: object) -> None:
        """Run the changed source."""
        exec(compile(self._source, str(self._path), "exec"), vars(module))  # noqa: S102


def tested(subject: Subject, source: str, seconds: float, server: Pair | None) -> str:
    """Return ``killed``, ``survived`` or ``timeout``: the verdict of the tests on a source of the subject's module."""
    child = os.fork()
    if child == 0:
        os._exit(_run_tests(_Mutated(subject.module, source, subject.path), subject, server))
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return "survived" if status == 0 else "killed"
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "timeout"


def _run_tests(finder: _Mutated, subject: Subject, server: Pair | None) -> int:
    os.setsid()  # whatever the tests start ends with them
    sys.dont_write_bytecode = True
    sys.meta_path.insert(0, finder)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    import pytest  # noqa: PLC0415

    from pyrometer_simulator import postgres  # noqa: PLC0415

    if server is not None:
        postgres.Pair = lambda **_: contextlib.nullcontext(server)  # type: ignore[assignment, misc]
    options = ["-x", "-q", "-p", "no:cacheprovider", "--timeout=60", "-W", "ignore", f"--rootdir={ROOT}"]
    tests = [str(ROOT / test) for test in subject.tests]
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            return int(pytest.main([*options, *tests, "-k", subject.chosen]))
    except BaseException:  # noqa: BLE001  an import that fails is a mutant that is noticed
        return 1


def measure(name: str, jobs: int, chosen: Sequence[int] = (), sample: int = 0) -> dict[str, Any]:
    """Return the figures of a subject: of the ``chosen`` lines, or of so many mutants, always the same.

    Raises:
        SystemExit: its tests fail without any change.
    """
    subject = SUBJECTS[name]
    version, source = version_of(subject.path), subject.path.read_text(encoding="utf-8")
    everything = list(mutants_of(source))
    mutants = [one for one in everything if not chosen or one.line in chosen]
    if 0 < sample < len(mutants):
        mutants = Random(SAMPLE_SEED).sample(mutants, sample)  # noqa: S311
    with _servers(jobs if subject.on_server else 0) as servers:
        verdicts = _verdicts(subject, source, mutants, jobs, servers)
    known = json.loads(EQUIVALENT.read_text(encoding="utf-8")).get(name, {}) if EQUIVALENT.exists() else {}
    survivors = [one for one, verdict in zip(mutants, verdicts, strict=True) if verdict == "survived"]
    return {
        "subject": name, "module": subject.module, "version": version, "of": len(everything), "mutants": len(mutants),
        "killed": len(mutants) - len(survivors), "timeouts": verdicts.count("timeout"),
        "equivalent": [f"{one.line}: {one.name}" for one in survivors if one.name in known],
        "survivors": [f"{one.line}: {one.name}" for one in survivors if one.name not in known],
    }  # fmt: skip


def again(row: dict[str, Any], jobs: int) -> dict[str, Any]:
    """Return a subject's row after its survivors alone were tried again, as where tests were added.

    Raises:
        SystemExit: the module is another one than that of the row, or its tests fail without any change.
    """
    subject = SUBJECTS[row["subject"]]
    if version_of(subject.path) != row["version"]:
        raise SystemExit(f"mutate: {subject.module} has changed since: measure it as a whole")
    found = measure(row["subject"], jobs, [int(one.partition(":")[0]) for one in row["survivors"]])
    left = [one for one in row["survivors"] if one in found["survivors"]]
    equivalent = [one for one in row["survivors"] if one in found["equivalent"]]
    return row | {
        "killed": row["mutants"] - len(left) - len(row["equivalent"]) - len(equivalent),
        "equivalent": row["equivalent"] + equivalent, "survivors": left,
    }  # fmt: skip


def _verdicts(
    subject: Subject, source: str, mutants: Sequence[Mutant], jobs: int, servers: queue.SimpleQueue[Pair]
) -> list[str]:
    """Return the verdict on each mutant; a change of nothing comes first, to see how long the tests take."""

    def verdict(one: Mutant) -> str:
        server = servers.get() if subject.on_server else None
        try:
            return tested(subject, one.source, patience, server)
        finally:
            if server is not None:
                servers.put(server)

    patience, began = 600.0, time.monotonic()
    if verdict(Mutant(0, "", "", ast.unparse(ast.parse(source)))) != "survived":
        raise SystemExit(f"mutate: the tests of {subject.module} fail without any change")
    patience = max(LEAST_SECONDS, PATIENCE * (time.monotonic() - began))
    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(verdict, mutants))


@contextlib.contextmanager
def _servers(count: int) -> Iterator[queue.SimpleQueue[Pair]]:
    """Start so many PostgreSQL, one for each child that runs at a time: starting one takes longer than the tests."""
    from pyrometer_simulator import postgres  # noqa: PLC0415

    free: queue.SimpleQueue[Pair] = queue.SimpleQueue()
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            free.put(stack.enter_context(postgres.Pair()))
        yield free


def _rows(file: Path) -> dict[str, dict[str, Any]]:
    return {row["subject"]: row for row in json.loads(file.read_text(encoding="utf-8"))}


def _write(file: Path, row: dict[str, Any]) -> None:
    """Replace a subject's figures in the file, in the order of SUBJECTS."""
    rows = (_rows(file) if file.exists() else {}) | {row["subject"]: row}
    ordered = [rows[subject] for subject in SUBJECTS if subject in rows]
    file.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")


def main(argv: Sequence[str] | None = None) -> int:
    """Print each subject's rate and survivors; return 1 if a mutant survived that is not known to be equivalent."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("subjects", nargs="*", choices=[*SUBJECTS, []], help="default: all of them")
    parser.add_argument("--jobs", type=int, default=2, help="children at a time (default: %(default)s)")
    parser.add_argument("--lines", type=int, nargs="*", default=[], help="only mutants of these lines")
    parser.add_argument("--sample", type=int, default=0, metavar="N", help="only N mutants of each subject, by chance")
    parser.add_argument("--again", action="store_true", help="only what survived in the figures of --write")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the figures as JSON; other subjects' stay")
    options = parser.parse_args(argv)
    os.chdir(ROOT)
    for name in LIBRARIES:
        importlib.import_module(name)
    rows = []
    for subject in options.subjects or SUBJECTS:
        rows.append(
            again(_rows(options.write)[subject], options.jobs)
            if options.again
            else measure(subject, options.jobs, options.lines, options.sample)
        )
        row = rows[-1]
        if options.write:
            _write(options.write, row)
        print(f"{subject}: {row['killed']} of {row['mutants']} killed, {len(row['equivalent'])} equivalent", flush=True)
        for survivor in row["survivors"]:
            print(f"    {survivor}", flush=True)
    return int(any(row["survivors"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
