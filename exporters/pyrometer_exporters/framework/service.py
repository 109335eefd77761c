"""The program around an exporter's collectors, for the node and the cluster exporter: flags, web server, signals."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from pyrometer_exporters.framework import custom_collectors
from pyrometer_exporters.framework.collector import Collector, CollectorSpec, Context, Endpoint, FlagGroup, discover
from pyrometer_exporters.framework.exposition import (
    OPENMETRICS_CONTENT_TYPE,
    TEXT_CONTENT_TYPE,
    Renderer,
    openmetrics_page,
)
from pyrometer_exporters.framework.gather import Gathered, Gatherer
from pyrometer_exporters.framework.landing import landing_page
from pyrometer_exporters.framework.metrics import Columns, Families, Item, columns_of, joined
from pyrometer_exporters.framework.process import Process
from pyrometer_kit import logs, version, webconfig
from pyrometer_kit.clock import SystemClock
from pyrometer_kit.command_line import add_version_flag
from pyrometer_kit.errors import UsageError, fail
from pyrometer_kit.flags import Flags, address
from pyrometer_kit.http_message import Handler, Request, Response, text
from pyrometer_kit.http_server import WebServer
from pyrometer_kit.negotiation import prefers_openmetrics
from pyrometer_kit.reload import WebConfigReload
from pyrometer_kit.statefile import default_folder, state_folder
from pyrometer_kit.threads import Threads, complete

log = logging.getLogger(__name__)

# fmt: off
FAMILIES = Families()
BUILD_INFO = FAMILIES.gauge("pyrometer_exporter_build_info",
    "1; the version of the exporter that answers.", "exporter", "version")
RELOAD_SUCCESSFUL = FAMILIES.gauge("pyrometer_exporter_web_config_last_reload_successful",
    "1 while the files of --web.config.file can be used as they are, 0 while an older configuration stays in force.")
STATE_WRITABLE = FAMILIES.gauge("pyrometer_exporter_state_writable",
    "1 while the folder of --path.state can be written, 0 while counts would restart with the exporter.")
# fmt: on

DEFAULT_SCRAPE_SECONDS = 9.5  # without Prometheus' header: its default timeout is 10 s
# The answer must be on its way before Prometheus gives up; blackbox_exporter subtracts the same half second.
SCRAPE_HEADROOM_SECONDS = 0.5
MIN_SCRAPE_SECONDS = 0.2
CLOSE_SECONDS = 0.4
_BY_ACCEPT = {"Vary": "Accept"}
_TIMEOUT = "x-prometheus-scrape-timeout-seconds"


@dataclass(frozen=True)
class Exporter:
    """The differences between one exporter and another."""

    prog: str
    title: str
    package: ModuleType
    listen: str
    add_flags: Callable[[FlagGroup], None] = field(default=lambda _parser: None)
    """Adds flags that several of its collectors share."""
    left_out: Callable[[argparse.Namespace], Collection[str]] = field(default=lambda _flags: ())
    """Returns the names of the families that these flags leave out of /metrics."""
    custom_group: str = ""
    """Entry point group in which a site's own collectors for this exporter are looked for; empty for none."""
    reads_node: bool = True
    """Whether it reads the files of the machine it runs on: sysfs, procfs, the kernel's log, the rings."""


def run(exporter: Exporter, argv: Sequence[str] | None = None) -> int:
    """Parse ``argv``, serve until SIGTERM or SIGINT, and return the exit status."""
    specs, refused = collectors_of(exporter)
    flags = parser(exporter, specs).parse_args(argv)
    logs.set_up(getattr(flags, "log.level"), getattr(flags, "log.format"))
    for line in refused:
        log.warning("%s", line)
    try:
        config = webconfig.load(getattr(flags, "web.config.file"))
        context = _context(flags)
        collectors = [(spec, build(spec, context)) for spec in specs if getattr(flags, f"collector.{spec.name}")]
        return asyncio.run(_serve(exporter, flags, config, collectors, context.state))
    except UsageError as error:
        return fail(exporter.prog, error)


def collectors_of(exporter: Exporter) -> tuple[list[CollectorSpec], list[str]]:
    """Return the exporter's own collectors and the site's, and a line for each of the site's that can't be used."""
    specs = discover(exporter.package)
    if not exporter.custom_group:
        return specs, []
    custom_specs, refused = custom_collectors.discover(exporter.custom_group, [spec.name for spec in specs])
    return specs + custom_specs, refused


class _Unbuilt:
    """A collector that could not be built: each scrape reports it and retries, as the reason may have gone away."""

    def __init__(self, spec: CollectorSpec, context: Context) -> None:
        self._spec = spec
        self._context = context
        self._built: Collector | None = None

    def collect(self, until: float) -> Iterable[Item]:
        if self._built is None:
            self._built = self._spec.build(self._context)
        return self._built.collect(until)

    def close(self) -> None:
        if self._built is not None:
            self._built.close()


def build(spec: CollectorSpec, context: Context) -> Collector:
    """Return a collector; one that cannot be built now retries at each scrape.

    Raises:
        UsageError: Its flags cannot be used.
    """
    try:
        return spec.build(context)
    except UsageError:
        raise
    except Exception:
        log.exception("could not build collector %s; retrying at each scrape", spec.name)
        return _Unbuilt(spec, context)


def parser(exporter: Exporter, specs: Sequence[CollectorSpec]) -> Flags:
    """Return the parser of all flags, the exporter's own and its collectors'."""
    flags = Flags(exporter.prog, exporter.title)
    add_version_flag(flags, "pyrometer-exporters")
    add = flags.add_argument
    add("--web.listen-address", dest="web.listen-address", type=address, default=exporter.listen, metavar="HOST:PORT",
        help="address to serve on (default: %(default)s)")  # fmt: skip
    add(
        "--web.config.file",
        dest="web.config.file",
        metavar="FILE",
        help="exporter-toolkit YAML: TLS, users, headers; reloaded when it or a file that it names changes",
    )
    if exporter.reads_node:
        _add_node_paths(flags)
    add("--path.state", dest="path.state", metavar="DIR",
        help="folder for what outlives a restart (default: $STATE_DIRECTORY, else /var/lib/pyrometer)")  # fmt: skip
    add("--web.notice", dest="web.notice", default="", metavar="TEXT",
        help="notice on the landing page, such as MAINTENANCE UNTIL NOON")  # fmt: skip
    add("--log.level", dest="log.level", choices=logs.LEVELS, default="info", help="(default: %(default)s)")
    add("--log.format", dest="log.format", choices=logs.FORMATS, default="logfmt", help="(default: %(default)s)")
    exporter.add_flags(flags)
    for spec in specs:
        group = flags.add_argument_group(f"collector {spec.name}", spec.help)
        group.add_argument(f"--collector.{spec.name}", dest=f"collector.{spec.name}", default=spec.default_enabled,
                           action=argparse.BooleanOptionalAction, help="enable this collector")  # fmt: skip
        spec.add_flags(group)
    return flags


def _add_node_paths(parser: FlagGroup) -> None:
    add = parser.add_argument
    add(
        "--path.sysfs", dest="path.sysfs", type=Path, default=Path("/sys"), metavar="DIR", help="where sysfs is mounted"
    )
    add(
        "--path.procfs",
        dest="path.procfs",
        type=Path,
        default=Path("/proc"),
        metavar="DIR",
        help="where procfs is mounted",
    )
    add("--path.kmsg", dest="path.kmsg", type=Path, default=Path("/dev/kmsg"), metavar="FILE",
        help="the kernel's log, or a file or pipe in its record format (default: %(default)s)")  # fmt: skip
    add("--path.rings", dest="path.rings", type=Path, default=Path("/dev/shm/pyrometer"), metavar="DIR",  # noqa: S108
        help="folder of the training ranks' rings (default: %(default)s)")  # fmt: skip


def _context(flags: argparse.Namespace) -> Context:
    default = default_folder()
    state = state_folder(getattr(flags, "path.state"), default)
    if state is None:
        log.warning("can't write to %s: counts restart at 0 with the exporter; see --path.state", default)
    return context_of(flags, state)


def context_of(flags: argparse.Namespace, state: Path | None = None) -> Context:
    """Return what collectors are built from; without a ``state`` folder they store nothing."""

    def path(name: str) -> Path:
        given: Path = getattr(flags, f"path.{name}", Path())
        return given

    return Context(flags, SystemClock(), path("sysfs"), path("procfs"), path("rings"), state, path("kmsg"))


async def _serve(
    exporter: Exporter,
    flags: argparse.Namespace,
    config: webconfig.WebConfig,
    collectors: list[tuple[CollectorSpec, Collector]],
    state: Path | None,
) -> int:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    gatherer = Gatherer(collectors, SystemClock(), exporter.left_out(flags))
    threads = Threads()
    path = getattr(flags, "web.config.file")
    reload = WebConfigReload(path, config) if path else None
    app = _App(
        exporter,
        gatherer,
        [collector for _, collector in collectors],
        threads,
        notice=getattr(flags, "web.notice"),
        reload=reload,
        state=state,
    )
    server = WebServer(app.routes(), config, threads)
    where = getattr(flags, "web.listen-address")
    port = await server.start(where)
    log.info("%s %s listening on %s:%d", exporter.prog, version.installed("pyrometer_exporters"), where.host, port)
    # Logs, before anyone scrapes, what is absent on this node.
    background: list[asyncio.Future[Any]] = [asyncio.ensure_future(app.gather(DEFAULT_SCRAPE_SECONDS))]
    if reload is not None:
        background.append(asyncio.ensure_future(reload.run()))
    await stop.wait()
    log.info("stopping")
    await server.stop()
    for task in background:
        task.cancel()
    # A collector that hangs must not keep the exporter from ending.
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(threads.call(gatherer.close), CLOSE_SECONDS)
    return 0


class _Page(NamedTuple):
    """The result of a gathering, all samples that it serves, and their text."""

    gathered: Gathered
    columns: Columns
    text: bytes


class _App:
    """The routes of an exporter. Scrapes at the same time share one gathering and its text."""

    def __init__(
        self,
        exporter: Exporter,
        gatherer: Gatherer,
        collectors: Sequence[Collector],
        threads: Threads,
        *,
        notice: str = "",
        reload: WebConfigReload | None = None,
        state: Path | None = None,
    ) -> None:
        self._state = state
        self._notice = notice
        self._reload = reload
        self._exporter = exporter
        self._gatherer = gatherer
        self._collectors = collectors
        self._threads = threads
        self._version = version.installed("pyrometer_exporters")
        self._process = Process()
        self._renderer = Renderer()
        self._waiting: list[asyncio.Future[_Page]] = []  # not empty exactly while a gathering is under way
        self._last: Gathered | None = None

    def routes(self) -> dict[str, Handler]:
        routes: dict[str, Handler] = {
            "/": self._landing,
            "/metrics": self._metrics,
            "/-/healthy": self._healthy,
            "/-/ready": self._ready,
        }
        for path, endpoint in self._endpoints().items():
            routes[path] = self._collector_route(endpoint)
        return routes

    async def gather(self, seconds: float) -> _Page:
        # Each caller has its own future: a client that goes away cancels nobody else's.
        waiter: asyncio.Future[_Page] = asyncio.get_running_loop().create_future()
        if not self._waiting:
            self._threads.submit(self._gathered, self._page, seconds)
        self._waiting.append(waiter)
        return await waiter

    def _page(self, seconds: float) -> _Page:
        """Gather and render; in a thread, so that other connections need not wait."""
        gathered = self._gatherer.gather(seconds)
        samples = [BUILD_INFO.sample(1, self._exporter.prog, self._version), *self._process.samples()]
        samples.append(STATE_WRITABLE.sample(int(self._state is not None and os.access(self._state, os.W_OK))))
        if self._reload is not None:
            samples.append(RELOAD_SUCCESSFUL.sample(int(self._reload.successful)))
        columns = joined([gathered.columns, columns_of(samples)])
        return _Page(gathered, columns, self._renderer.page(columns))

    def _gathered(self, page: _Page | None, error: BaseException | None) -> None:
        waiting, self._waiting = self._waiting, []
        if page is not None:
            self._last = page.gathered
        for waiter in waiting:
            complete(waiter, page, error)

    def _endpoints(self) -> Mapping[str, Endpoint]:
        endpoints: dict[str, Endpoint] = {}
        for collector in self._collectors:
            endpoints |= getattr(collector, "endpoints", dict)()
        return endpoints

    async def _metrics(self, request: Request) -> Response:
        page = await self.gather(_scrape_seconds(request))
        if prefers_openmetrics(request.headers.get("accept", "")):
            text_of_page = await self._threads.call(openmetrics_page, page.columns)
            return Response(200, text_of_page, OPENMETRICS_CONTENT_TYPE, _BY_ACCEPT)
        return Response(200, page.text, TEXT_CONTENT_TYPE, _BY_ACCEPT)

    async def _landing(self, _request: Request) -> Response:
        gathered = self._last or (await self.gather(DEFAULT_SCRAPE_SECONDS)).gathered
        links = ["/metrics", *self._endpoints(), "/-/healthy", "/-/ready"]
        version = f"{self._exporter.prog} {self._version}"
        page = landing_page(self._exporter.title, version, self._notice, links, gathered.states)
        return Response(200, page.encode(errors="replace"), "text/html; charset=utf-8")

    async def _healthy(self, _request: Request) -> Response:
        return text(200, "healthy")

    async def _ready(self, _request: Request) -> Response:
        return text(200, "ready") if self._last else text(503, "the first collection is still under way")

    def _collector_route(self, endpoint: Endpoint) -> Handler:
        async def handle(request: Request) -> Response:
            reply = await self._threads.call(endpoint, request)
            return Response(200, reply.body, reply.content_type, delivered=reply.delivered)

        return handle


def _scrape_seconds(request: Request) -> float:
    """Return how long a scrape may take, from the header that Prometheus sends with each."""
    try:
        timeout = float(request.headers.get(_TIMEOUT, ""))
    except ValueError:
        return DEFAULT_SCRAPE_SECONDS
    return min(max(MIN_SCRAPE_SECONDS, timeout - SCRAPE_HEADROOM_SECONDS), 60.0)
