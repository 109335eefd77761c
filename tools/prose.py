"""Find wording that a native reader would have to decode, in docstrings, comments, messages and pages.

    python tools/prose.py [FOLDER...]        # one line per finding; exit status 1 if there is any

The rules: a function's docstring begins with a verb, no text begins with "What", "Of", "Whether" or "That which", and
some words are not used in the sense that they have in no manual. Code, quoted or fenced, is not read.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]

# Pattern: the better words. A pattern leaves out the uses of a word that are ordinary English.
WORDS = {
    r"anew\b": "again",
    r"to be had\b": "available",
    r"\w+ (is|are|was|were) nobody's\b": "name who owns it",
    r"of nobody's\b": "name who owns it",
    r"go(es)? on without\b": "continue without",
    r"by (itself|themselves)\b": "on its own",
    r"stands\b(?! (for|in for|out|between)\b)": "is",
    r"stand still\b": "stall",
    r"tells?\b(?!.{0,50}\b(apart|from)\b)": "report",
    r"what (it|they|he) (say|says|said)\b": "its value, its answer",
    r"(as|where|what|which|that) (it|he|she) says\b": "report",
    r"(who|what|which|that|it|he|she) is there\b": "exists",
    r"that which\b": "what",
    r"is (held|had|given|taken) (by|of) nobody\b": "is unused",
    r"in life\b": "in production",
    r"tremble\w*": "jitter",
    r"let go of\b(?! (the |all )?GPUs?)": "release",
    r"gives? no answer\b": "does not answer",
    r"(minutes?|hours?|seconds?) or longer\b": "for at least",
    r"could not be had\b": "could not be read",
    r"does not convince\b": "is not convincing",
    r"(as far as|as far back as|than) was looked\b": "the examined period",
    r"than it may be\b": "name the limit",
}
_WORDS = [(re.compile(rf"(?<![\w-]){pattern}", re.IGNORECASE), better) for pattern, better in WORDS.items()]
_ANY_WORD = re.compile(rf"(?<![\w-])(?:{'|'.join(WORDS)})", re.IGNORECASE)  # nearly all texts have none: one look

OPENERS = re.compile(r"(?:(?:What|Of|Whether|That which)\b|It,)(?!.*\?)")
# A noun phrase where a verb belongs; classes, modules and properties may have one.
NO_VERB = re.compile(
    r"(The|A|An|Its|Their|This|These|Those|All|Each|Every|Both|No|None|Who|Whose|How|Why|When|Where)\b"
)

# Where the words themselves are listed.
EXEMPT = ("tools/prose.py", "tests/test_prose.py")
LISTED = (".py", ".md", ".yaml", ".yml")
SENTENCE_ENDS = re.compile(r"(?<=[.!?])\s+")
PROPERTIES = ("property", "cached_property", "functools.cached_property")


class Text(NamedTuple):
    """A piece of prose: where its first line is, its kind, and its words."""

    line: int
    kind: str  # "function", "docstring", "comment", "message", "page"
    words: str


class Finding(NamedTuple):
    """A place to reword: what is wrong there, and how it could be said."""

    file: str
    line: int
    wrong: str
    better: str

    def __str__(self) -> str:
        """Return the finding as one line."""
        return f"{self.file}:{self.line}: {self.wrong!r}" + (f": better {self.better!r}" if self.better else "")


def findings(path: Path, text: str | None = None) -> Iterator[Finding]:
    """Return what is to be reworded in a file, in the order of its lines."""
    content = path.read_text(encoding="utf-8") if text is None else text
    name = str(path.relative_to(ROOT)) if path.is_absolute() else str(path)
    for piece in sorted(pieces(path, content)):
        words = without_code(piece.words)
        yield from (Finding(name, piece.line, *wrong) for wrong in wrongs(piece.kind, words))


def wrongs(kind: str, words: str) -> Iterator[tuple[str, str]]:
    """Return the wrong words of a text with better ones."""
    for pattern, better in _WORDS if _ANY_WORD.search(words) else ():
        yield from ((match[0], better) for match in pattern.finditer(words))
    if kind in ("function", "docstring", "comment", "page"):
        for sentence in SENTENCE_ENDS.split(words):
            match = OPENERS.match(sentence)
            if match:
                yield f"{' '.join(sentence.split()[:4])} ...", "begin with who does it, or with a verb"
    if kind == "function" and NO_VERB.match(words):
        yield f"{' '.join(words.split()[:4])} ...", "begin with a verb: Return, Read, Parse"


def without_code(text: str) -> str:
    """Return the text without what is quoted as code or linked to, on one line."""
    text = re.sub(r"``.*?``|`[^`\n]*`", "CODE", text, flags=re.DOTALL)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    return " ".join(text.split())


def pieces(path: Path, text: str) -> Iterator[Text]:
    """Return the prose of a file, by its kind."""
    if path.suffix == ".py":
        yield from _of_python(path, text)
    elif path.suffix == ".md":
        yield from _of_markdown(text)
    else:
        yield from _of_yaml(text)


def _of_python(path: Path, text: str) -> Iterator[Text]:
    tree = ast.parse(text)
    docstrings = set()
    # Helpers and fixtures of tests are often named things; messages there are samples of others' words.
    is_test = "tests" in path.parts
    for node in (tree, *statements(tree.body)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            words = ast.get_docstring(node)
            if words is not None and isinstance(first, ast.Expr):
                docstrings.add(id(first.value))
                kind = "docstring" if is_test else _kind(node)
                yield Text(first.lineno, kind, _prose_of(words))
    if not is_test and "benchmarks" not in path.parts:
        yield from _messages(tree, docstrings)
    yield from _comments(text)


def statements(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Return these statements and all those in them; a walk through all expressions takes ten times as long."""
    for each in body:
        yield each
        for part in ("body", "handlers", "orelse", "finalbody", "cases"):
            yield from statements(getattr(each, part, ()))


def _kind(node: ast.AST) -> str:
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return "docstring"
    decorators = {ast.unparse(each).partition("(")[0] for each in node.decorator_list}
    return "docstring" if decorators & {*PROPERTIES} else "function"


def _prose_of(docstring: str) -> str:
    """Return a docstring without its indented examples."""
    paragraphs = docstring.split("\n\n")
    return "\n".join(each for each in paragraphs if not each.lstrip("\n").startswith((" ", ">>>")))


def _messages(tree: ast.AST, docstrings: set[int]) -> Iterator[Text]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            words = node.value
            if len(re.findall(r"[A-Za-z]{2,}", words)) >= 3 and " " in words:
                yield Text(node.lineno, "message", words)


def _comments(text: str) -> Iterator[Text]:
    """Return comments, those on lines one after the other as one."""
    begun, last, words = 0, -1, ""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT:
            continue
        line, own = token.start[0], not token.line[: token.start[1]].strip()
        body = re.sub(r"^#+:?\s?|\s*(noqa|type: ignore|fmt: \w+).*$", "", token.string)
        if own and line == last + 1:
            words, last = f"{words}\n{body}", line
            continue
        if words.strip():
            yield Text(begun, "comment", words)
        begun, words, last = line, body, line if own else -1
    if words.strip():
        yield Text(begun, "comment", words)


def _of_markdown(text: str) -> Iterator[Text]:
    """Return paragraphs and items; headings and table rows are texts whose beginning does not count."""
    text = re.sub(r"^( *)```.*?^\1```", lambda match: "\n" * match[0].count("\n"), text, flags=re.DOTALL | re.MULTILINE)
    begun, words = 0, ""
    for number, line in enumerate([*text.splitlines(), ""], 1):
        new = re.match(r"\s*([-*]|\d+\.)\s|#|\||<!--|\s*$|    ", line)
        if new and words.strip():
            yield Text(begun, "message" if words.lstrip().startswith(("#", "|")) else "page", _plain(words))
            words = ""
        if not words.strip():
            begun, words = number, ""
        words += f"{line}\n"


def _plain(words: str) -> str:
    return re.sub(r"^\s*([-*]|\d+\.)\s+|\*\*", "", words)


def _of_yaml(text: str) -> Iterator[Text]:
    """Return comments as such, and all other lines, as they may be part of an alert's text."""
    for number, line in enumerate(text.splitlines(), 1):
        before, mark, comment = line.partition("#")
        yield Text(number, "message", comment if mark and not before.strip() else line)


def files(folders: Iterable[str] = ()) -> list[Path]:
    """Return the files of the repository that hold prose, in these folders only if any are given."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    paths = [Path(name) for name in listed.split("\0") if name.endswith(LISTED) and name not in EXEMPT]
    wanted = [Path(folder) for folder in folders]
    chosen = [path for path in paths if not wanted or any(path.is_relative_to(folder) for folder in wanted)]
    return [ROOT / path for path in chosen if (ROOT / path).exists()]


def main(folders: Sequence[str]) -> int:
    """Print the findings; return 1 if there is any."""
    every = [finding for path in files(folders) for finding in findings(path)]
    for finding in every:
        print(finding)
    return int(bool(every))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
