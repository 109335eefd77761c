"""A parser of PromQL for the checks: which series are read, under which functions, with which windows.

It exists because no other parser fits. promtool checks syntax but has no output for the tree that the checks walk, and
it refuses Grafana's variables, which may appear in label values, for durations and for metric names. Prometheus itself
evaluates every query of our boards in tests/dashboards.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

_TOKEN = re.compile(
    r"""
    (?P<space>\s+|\#[^\n]*)
  | (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
  | (?P<range>\[[^\]]*\])
  | (?P<duration>\d+(?:ms|[smhdwy])(?:\d+(?:ms|[smhdwy]))*)
  | (?P<number>0x[0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
  | (?P<name>\$\{\w+(?::\w+)?\}|\$\w+|[A-Za-z_:][\w:]*)
  | (?P<operator>==|!=|<=|>=|=~|!~|[-+*/%^<>=(){},@])
    """,
    re.VERBOSE,
)
AGGREGATIONS = frozenset(
    [
        "sum",
        "min",
        "max",
        "avg",
        "group",
        "stddev",
        "stdvar",
        "count",
        "count_values",
        "bottomk",
        "topk",
        "quantile",
        "limitk",
        "limit_ratio",
    ]
)
# From loosest to tightest binding.
_LEVELS = (("or",), ("and", "unless"), ("==", "!=", "<=", "<", ">=", ">"), ("+", "-"), ("*", "/", "%", "atan2"), ("^",))


class PromqlError(Exception):
    """The expression is not valid PromQL; the message is one line."""


@dataclass(frozen=True)
class Expression:
    """A part of an expression.

    Attributes:
        kind: selector, call, aggregation, binary, number, string.
        name: of the metric, function, aggregation or operator.
        matchers: of a selector: (label, operator, value).
        window: the text in the brackets after it, or empty; ``offset`` (with its sign) and ``at`` likewise.
        labels: of an aggregation's by or without; None for neither.
        parts: arguments or operands.
        end: of a selector: where its name and matchers end in the text.
    """

    kind: str
    name: str = ""
    matchers: tuple[tuple[str, str, str], ...] = ()
    window: str = ""
    at: str = ""
    offset: str = ""
    grouping: str = ""
    labels: tuple[str, ...] = ()
    parts: tuple[Expression, ...] = ()
    extra: dict[str, str] = field(default_factory=dict)
    end: int = field(default=0, compare=False)

    def walk(self, under: tuple[Expression, ...] = ()) -> Iterator[tuple[Expression, tuple[Expression, ...]]]:
        """Yield this part and all parts below it, each with its ancestors, the outermost first."""
        yield self, under
        for part in self.parts:
            yield from part.walk((*under, self))


def parse(text: str) -> Expression:
    """Return the expression as a tree.

    Raises:
        PromqlError: the expression is not valid.
    """
    parser = _Parser(list(_tokens(text)))
    node = parser.expression(0)
    if parser.peek():
        raise PromqlError(f"unexpected {parser.peek()!r}")
    return node


def _tokens(text: str) -> Iterator[tuple[str, str, int]]:
    """Yield each token's kind and text, and where it ends."""
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise PromqlError(f"unexpected {text[at]!r}")
        at = match.end()
        if match.lastgroup not in (None, "space"):
            yield str(match.lastgroup), match[0], at


class _Parser:
    def __init__(self, tokens: Sequence[tuple[str, str, int]]) -> None:
        self._tokens = tokens
        self._at = 0

    def peek(self, kind: str = "") -> str:
        """Return the next token's text if it is of that kind, else an empty string."""
        if self._at >= len(self._tokens):
            return ""
        token_kind, text, _ = self._tokens[self._at]
        return text if not kind or token_kind == kind else ""

    def _next(self) -> str:
        text = self.peek()
        if not text:
            raise PromqlError("it ends too early")
        self._at += 1
        return text

    def _expect(self, text: str) -> None:
        token = self._next()
        if token != text:
            raise PromqlError(f"{token!r} instead of {text!r}")

    def _take(self, *texts: str) -> str:
        return self._next() if self.peek().lower() in texts else ""

    def expression(self, level: int) -> Expression:
        """Parse an expression whose operators bind at least as tightly as ``level``."""
        if level == len(_LEVELS):
            return self._unary()
        left = self.expression(level + 1)
        while operator := self._take(*_LEVELS[level]):
            extra = self._modifiers()
            left = Expression("binary", operator.lower(), parts=(left, self.expression(level + 1)), extra=extra)
        return left

    def _modifiers(self) -> dict[str, str]:
        modifiers = {}
        while word := self._take("bool", "on", "ignoring", "group_left", "group_right"):
            modifiers[word.lower()] = ",".join(self._label_list()) if self.peek() == "(" and word != "bool" else ""
        return modifiers

    def _unary(self) -> Expression:
        if self._take("-", "+"):
            return Expression("binary", "-", parts=(Expression("number", "0"), self.expression(len(_LEVELS) - 1)))
        return self._behind(self._atom())

    def _behind(self, node: Expression) -> Expression:
        """Parse brackets, offset and @ after an operand."""
        window, at, offset = "", "", ""
        while True:
            if self.peek("range"):
                window = self._next()[1:-1].strip()
                if not re.fullmatch(r"[\w${}.:]+(\s*:\s*[\w${}]*)?", window):
                    raise PromqlError(f"[{window}] is no window")
            elif self._take("offset"):
                offset = self._take("-") + self._next()
            elif self._take("@"):
                at = self._next()
                if self.peek() == "(":
                    self._expect("(")
                    self._expect(")")
            else:
                break
        if not window and not at:
            return replace(node, offset=offset) if offset else node
        if node.kind == "selector":
            return replace(node, window=window, at=at, offset=offset)
        return Expression("subquery", window=window, at=at, offset=offset, parts=(node,))

    def _atom(self) -> Expression:
        if self._take("("):
            inner = self.expression(0)
            self._expect(")")
            return Expression("parentheses", parts=(inner,))
        if self.peek("number") or self.peek("duration"):
            return Expression("number", self._next())
        if self.peek("string"):
            return Expression("string", self._next()[1:-1])
        if self.peek() == "{":
            return self._selector("")
        if self.peek("name"):
            return self._named()
        raise PromqlError(f"unexpected {self.peek()!r}" if self.peek() else "it ends too early")

    def _named(self) -> Expression:
        name = self._next()
        if name.lower() in AGGREGATIONS and self.peek().lower() in ("(", "by", "without"):
            return self._aggregation(name.lower())
        if self.peek() == "(":
            return Expression("call", name, parts=self._arguments())
        if name.lower() in ("inf", "nan"):
            return Expression("number", name)
        return self._selector(name)

    def _selector(self, name: str) -> Expression:
        matchers = self._matchers() if self.peek() == "{" else ()
        return Expression("selector", name, matchers, end=self._tokens[self._at - 1][2])

    def _aggregation(self, name: str) -> Expression:
        grouping, labels = self._grouping()
        parts = self._arguments()
        if not grouping:
            grouping, labels = self._grouping()
        return Expression("aggregation", name, grouping=grouping, labels=labels, parts=parts)

    def _grouping(self) -> tuple[str, tuple[str, ...]]:
        word = self._take("by", "without")
        return (word.lower(), self._label_list()) if word else ("", ())

    def _label_list(self) -> tuple[str, ...]:
        self._expect("(")
        labels = []
        while not self._take(")"):
            labels.append(self._next())
            if self.peek() != ")":
                self._expect(",")
        return tuple(labels)

    def _arguments(self) -> tuple[Expression, ...]:
        self._expect("(")
        arguments = []
        while not self._take(")"):
            arguments.append(self.expression(0))
            if self.peek() != ")":
                self._expect(",")
        return tuple(arguments)

    def _matchers(self) -> tuple[tuple[str, str, str], ...]:
        self._expect("{")
        matchers = []
        while not self._take("}"):
            label = self._next()
            operator = self._next()
            if operator not in ("=", "!=", "=~", "!~"):
                raise PromqlError(f"{operator!r} is no matcher")
            if not self.peek("string"):
                raise PromqlError(f"the value of {label} is no string")
            matchers.append((label, operator, self._next()[1:-1]))
            if self.peek() != "}":
                self._expect(",")
        return tuple(matchers)
