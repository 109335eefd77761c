"""The build backend of the checkout itself, which is no package: one line says which folder to install instead."""

from __future__ import annotations

from typing import NoReturn

MESSAGE = (
    "pyrometer: this folder is not a package, its parts are: `pip install ./client` for a training job, "
    "`pip install ./kit ./client ./exporters` for a GPU node or the cluster exporter, "
    "`pip install ./kit ./client ./alerting` for the alerting service, `pip install ./dashboards` for the dashboards, "
    "`make setup` for development"
)


def refuse(*_arguments: object) -> NoReturn:
    """End the build with the line. All hooks of PEP 517 and PEP 660 that a frontend may call first are this one.

    Raises:
        SystemExit: always.
    """
    raise SystemExit(MESSAGE)


get_requires_for_build_wheel = get_requires_for_build_editable = get_requires_for_build_sdist = refuse
build_wheel = build_editable = build_sdist = refuse
