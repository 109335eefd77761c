"""Show the settings of ``pyrometer.start`` by their names and types in the manual, as type checkers see them."""

from __future__ import annotations

import griffe


class SettingsByName(griffe.Extension):
    """Replaces ``**settings: Unpack[StartSettings]`` in the signature."""

    def on_package(self, *, pkg: griffe.Module, **_: object) -> None:
        """See :class:`griffe.Extension`."""
        if pkg.name == "pyrometer":
            parameters = pkg["_start.start"].parameters
            del parameters["settings"]
            for field in pkg["_settings.StartSettings"].attributes.values():
                kind = griffe.ParameterKind.keyword_only
                parameters.add(griffe.Parameter(field.name, annotation=field.annotation, kind=kind, default="None"))
