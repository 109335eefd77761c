"""Addresses of the run's page in W&B, MLflow or elsewhere: as the job gives them, or as a loaded tracker has them."""

from __future__ import annotations

import sys

from pyrometer import ring

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# RFC 3986, appendix A, without the quote and brackets, which end links elsewhere.
_LETTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~:/?#@!$&()*+,;=%")
_NAME_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_")


def clean(url: object) -> str:
    """Return an address fit to be shown to everybody, without user, password and query; empty where it is none.

    A query may hold a key, as that of W&B's anonymous runs does (``?apiKey=``).
    """
    text = str(url).strip()
    scheme, separator, rest = text.partition("://")
    if scheme not in ("http", "https") or not separator or not _LETTERS.issuperset(rest):
        return ""
    before, mark, fragment = rest.partition("#")
    host, slash, path = before.partition("?")[0].partition("/")
    host = host.rpartition("@")[2]
    fragment = fragment.partition("?")[0]
    return f"{scheme}://{host}{slash}{path}{mark if fragment else ''}{fragment}" if host else ""


def packed(links: object) -> tuple[str, list[str]]:
    """Return what the ring's header takes of ``{name: address}``, and the names that have no place or no address.

    Raises:
        Exception: no such mapping; whatever it raises.
    """
    lines: list[str] = []
    dropped: list[str] = []
    for name, url in dict(links).items():  # type: ignore[call-overload]
        label, address = str(name).lower()[: ring.LINK_NAME_BYTES], clean(url)
        line = f"{label} {address}\n"
        taken = sum(map(len, lines)) + len(line)
        if label and address and _NAME_LETTERS.issuperset(label) and taken <= ring.LINKS_BYTES:
            lines.append(line)
        else:
            dropped.append(str(name)[: ring.LINK_NAME_BYTES])
    return "".join(lines), dropped


def detected() -> dict[str, str]:
    """Return the pages of the runs that W&B and MLflow have open in this process, where the job has loaded them."""
    pages = {}
    for name, ask in (("wandb", _wandb), ("mlflow", _mlflow)):
        module = sys.modules.get(name)
        try:
            url = ask(module) if module is not None else ""
        except Exception:  # noqa: BLE001  half-imported, or of another version
            url = ""
        if url:
            pages[name] = url
    return pages


def _wandb(module: Any) -> str:
    run = module.run
    return str((run.url if run is not None else "") or "")


def _mlflow(module: Any) -> str:
    run = module.active_run()
    if run is None:
        return ""
    server = str(module.get_tracking_uri()).rstrip("/")
    if not server.startswith(("http://", "https://")):
        return ""  # a folder or a database has no page
    return f"{server}/#/experiments/{run.info.experiment_id}/runs/{run.info.run_id}"
