"""The modules that mutation testing holds to: which they are, which tests are to notice, and their code by version."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_STORAGE = "tests/alerting/incidents/storage"
_STORE = (f"{_STORAGE}/test_store_queries.py", f"{_STORAGE}/test_store_changes.py", f"{_STORAGE}/test_store.py")
_OTHERS = f"{_STORAGE}/test_outbox_others.py"
_BROKEN = f"{_STORAGE}/test_broken_file.py"
# Both engines read the same statements: PostgreSQL's own module is another subject, and a server takes seconds.
_ON_SQLITE = "not postgresql"


@dataclass(frozen=True)
class Subject:
    """Name a module to mutate and the tests that must notice a change of it, quickest first."""

    module: str
    tests: tuple[str, ...]
    chosen: str = ""
    on_server: bool = False
    """Whether the tests need a PostgreSQL, which is started once for all mutants."""

    @property
    def path(self) -> Path:
        """The module's file.

        Raises:
            ValueError: there is none any more.
        """
        return _file_of(self.module)


SUBJECTS = {
    "outbox": Subject(
        "pyrometer_alerting.incidents.storage.outbox",
        (
            f"{_STORAGE}/test_outbox.py",
            _OTHERS,
            f"{_STORAGE}/test_outbox_calls.py",
            "tests/alerting/channel/test_courier.py",
        ),
        _ON_SQLITE,
    ),
    "store": Subject(
        "pyrometer_alerting.incidents.storage.store", (f"{_STORAGE}/test_store_engine.py", *_STORE, _BROKEN), _ON_SQLITE
    ),
    "store's statements": Subject("pyrometer_alerting.incidents.storage.transaction", (*_STORE, _OTHERS), _ON_SQLITE),
    "store's file": Subject(
        "pyrometer_alerting.incidents.storage.database", (f"{_STORAGE}/test_database.py", _BROKEN, *_STORE), _ON_SQLITE
    ),
    "store's server": Subject(
        "pyrometer_alerting.incidents.storage.postgresql",
        (f"{_STORAGE}/test_postgresql_address.py", f"{_STORAGE}/test_postgresql.py", f"{_STORAGE}/test_leadership.py"),
        on_server=True,
    ),
    "leader": Subject(
        "pyrometer_alerting.incidents.storage.leadership",
        (f"{_STORAGE}/test_leader.py", f"{_STORAGE}/test_leadership.py"),
        on_server=True,
    ),
    "flap accumulator": Subject(
        "pyrometer_exporters.node.nic.link_down",
        tuple(f"tests/exporters/node/nic/test_{name}.py" for name in ("flap_accumulator", "link_down", "widening")),
    ),
    "clock-event seconds": Subject(
        "pyrometer_exporters.node.gpu.clock_events", ("tests/exporters/node/gpu/test_clock_events.py",)
    ),
    "exposition": Subject(
        "pyrometer_exporters.framework.exposition", ("tests/exporters/framework/test_exposition.py",)
    ),
}
# Each module that a subject imports from its own package, and every one of WHOLE, is a subject or has a reason here:
# where one is divided, its new part is neither, and a test fails.
WHOLE = ("pyrometer_alerting.incidents.storage",)
BESIDE = {
    "pyrometer_alerting.incidents.storage.actions": "what the policy did, which a limit of its own holds back",
    "pyrometer_alerting.incidents.storage.operation": "a row of the outbox without any logic",
    "pyrometer_alerting.incidents.storage.engine": "a protocol, and one line that shortens an error",
    "pyrometer_alerting.incidents.storage.schema": "tables, which every statement's test needs as they are",
    "pyrometer_exporters.framework.metrics": "types of samples, and no calculation",
    "pyrometer_exporters.node.nic.counters": "tables of counters, and no calculation",
}


def version_of(path: Path) -> str:
    """Return a digest of a module's code, the same in every Python, without comments, docstrings and imports."""
    source = path.read_text(encoding="utf-8")
    words = {line for node in ast.walk(ast.parse(source)) if _is_not_mutated(node) for line in _lines(node)}
    code = [line.rstrip() for number, line in enumerate(source.splitlines(), 1) if number not in words]
    kept = [line for line in code if line and not line.lstrip().startswith("#")]
    return hashlib.sha256("\n".join(kept).encode()).hexdigest()[:12]


def _is_not_mutated(node: ast.AST) -> bool:
    if isinstance(node, ast.Import | ast.ImportFrom):
        return True
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _lines(node: ast.AST) -> range:
    return range(getattr(node, "lineno", 0), (getattr(node, "end_lineno", 0) or 0) + 1)


def current_version(name: str) -> str:
    """Return `version_of` a subject's module, empty where there is no such module or subject any more."""
    try:
        return version_of(SUBJECTS[name].path)
    except (KeyError, ValueError):
        return ""


def unlisted() -> list[str]:
    """Return the modules that should be in SUBJECTS or in BESIDE, and those that are listed but are no modules."""
    needed = {name for package in WHOLE for name in _modules_of(package)}
    for subject in SUBJECTS.values():
        needed |= set(_siblings(subject))
    listed = {subject.module for subject in SUBJECTS.values()} | set(BESIDE)
    return sorted(needed - listed) + sorted(name for name in listed if not _exists(name))


def _modules_of(package: str) -> Iterator[str]:
    for path in _file_of(package).parent.glob("*.py"):
        if path.stem != "__init__":
            yield f"{package}.{path.stem}"


def _siblings(subject: Subject) -> Iterator[str]:
    """Yield what the module imports from its own package."""
    package = subject.module.rpartition(".")[0]
    if not _exists(subject.module):
        return
    for node in ast.walk(ast.parse(subject.path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(package + "."):
            yield str(node.module)
        elif isinstance(node, ast.ImportFrom) and node.module == package:
            yield from (f"{package}.{name.name}" for name in node.names if _exists(f"{package}.{name.name}"))


def _exists(module: str) -> bool:
    try:
        return _file_of(module).is_file()
    except ValueError:
        return False


def _file_of(module: str) -> Path:
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        spec = None
    if spec is None or spec.origin is None:
        raise ValueError(f"{module}: no such module")
    return Path(spec.origin)
