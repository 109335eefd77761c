"""A metric logger for torchtune, which its recipes make from their configuration: no recipe is changed.

    metric_logger:
      _component_: pyrometer.torchtune.metric_logger
      run: llama-8b
      tokens_per_step: 131072
      beside:                       # the logger that you had, if any
        _component_: torchtune.training.metric_logging.WandBLogger
        project: llama

It never raises into the recipe, and never imports torchtune itself. Only rank 0 has a logger, so the other ranks are
not seen: for those call ``pyrometer.auto`` in a copy of the recipe (``tune cp``) instead.
"""

from __future__ import annotations

from pyrometer._auto import auto
from pyrometer._hooks import never_raises
from pyrometer._start import start

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from typing_extensions import Unpack

    from pyrometer._run import Run
    from pyrometer._settings import RunSettings

_VALUES = ("loss", "grad_norm", "lr", "tokens_per_second_per_gpu")


def metric_logger(beside: Any = None, **settings: Unpack[RunSettings]) -> MetricLogger:
    """Return a metric logger that reports the steps that a recipe logs.

    Args:
        beside: Another metric logger, or the configuration of one, which gets everything as well.
        settings: Those of :func:`pyrometer.start`; dtype, batch sizes, recomputation and the model's name default to
            the recipe's. Tokens are given with ``tokens_per_step``: the recipe counts those that have a label alone.
    """
    return MetricLogger(_made(beside), settings)


class MetricLogger:
    """torchtune's ``MetricLoggerInterface``.

    The recipe logs every ``log_every_n_steps``, 1 in torchtune's own configurations: then a step ends where it is
    logged. Where only some are, those of the optimizer are counted instead, and a loss is recorded a step late.
    """

    def __init__(self, beside: Any, settings: RunSettings) -> None:
        self._beside = beside
        self._settings = settings
        self._ends_steps = True
        self._run: Run | None = None
        self._begun = False

    def log_config(self, config: Any) -> None:
        """Start the run: the recipe is about to load its model."""
        self._start(config)
        if self._beside is not None:
            self._beside.log_config(config)

    def log_dict(self, payload: Mapping[str, Any], step: int) -> None:
        """End a step."""
        self._logged(payload)
        if self._beside is not None:
            self._beside.log_dict(payload, step)

    def log(self, name: str, data: Any, step: int) -> None:
        """Hand on a single value: no step ends with one."""
        if self._beside is not None:
            self._beside.log(name, data, step)

    def close(self) -> None:
        """Close the run: the recipe ends well; after an exception it doesn't come here."""
        self._close()
        if self._beside is not None:
            self._beside.close()

    @never_raises
    def _start(self, config: Any) -> None:
        if self._run is not None:
            return
        self._ends_steps = int(_of(config, "log_every_n_steps") or 1) == 1
        settings: dict[str, Any] = {**_recipe_settings(config), **self._settings}
        self._run = start(**settings) if self._ends_steps else auto(**settings)
        self._run.awaits_close = True

    @never_raises
    def _logged(self, payload: Mapping[str, Any]) -> None:
        self._start(None)
        run = self._run
        if run is None:
            return
        if "loss" not in payload:
            run.tag("eval")
            return
        if self._begun or not self._ends_steps:  # the first step began with the loading of the model
            run.record(**{name: payload[name] for name in _VALUES if name in payload})
        if self._ends_steps:
            self._begun = True
            run.tick()

    @never_raises
    def _close(self) -> None:
        if self._run is not None:
            self._run.close()


def _made(logger: Any) -> Any:
    """Return a metric logger; torchtune makes the outermost component only, so that of ``beside`` is made here."""
    if not isinstance(logger, dict) or "_component_" not in logger:
        return logger
    import importlib  # noqa: PLC0415  would add to what the import costs

    module, _, name = str(logger["_component_"]).rpartition(".")
    given = {key: value for key, value in logger.items() if key != "_component_"}
    return getattr(importlib.import_module(module), name)(**given)


def _of(config: Any, name: str) -> Any:
    return None if config is None else config.get(name)


def _recipe_settings(config: Any) -> dict[str, Any]:
    """Return the settings that the recipe's configuration has."""
    if config is None:
        return {}
    micro, accumulated = _of(config, "batch_size"), _of(config, "gradient_accumulation_steps") or 1
    model = str((_of(config, "model") or {}).get("_component_", "")).rpartition(".")[2]
    settings = {
        "dtype": _of(config, "dtype"),
        "micro_batch_size": micro,
        "recompute": "full" if _of(config, "enable_activation_checkpointing") else "none",
        "model": model,
    }
    if micro:
        settings["global_batch_size"] = int(micro) * int(accumulated) * _replicas(config)
    return {name: value for name, value in settings.items() if value}


def _replicas(config: Any) -> int:
    """Return how many ranks have a batch of their own."""
    import os  # noqa: PLC0415  with the settings

    tensor = int(_of(config, "tensor_parallel_dim") or 1)
    return max(1, int(os.environ.get("WORLD_SIZE") or 1) // tensor)
