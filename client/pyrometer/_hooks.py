"""Hooks into packages that the client never imports: called once a module is loaded, and never raising."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import weakref
    from collections.abc import Callable
    from typing import Any, ParamSpec, Protocol

    from pyrometer._step import Part

    P = ParamSpec("P")

    class CheckpointSubscriber(Protocol):
        """Give the part ``checkpoint`` of a run, for the time in which a wrapped function writes one."""

        def checkpoint_part(self) -> Part | None:
            """Return the part ``checkpoint``, to be entered; None if the call is no pause of a run."""
            ...


SUBSCRIBERS = "__pyrometer_subscribers__"
_COMPILED_INSTEAD = "_torchdynamo_inline"  # the name by which PyTorch's compiler looks for it


def never_raises(hook: Callable[P, object]) -> Callable[P, None]:
    """Return ``hook`` without its exceptions and its result, for a framework to call."""

    def safe(*arguments: P.args, **named: P.kwargs) -> None:
        try:
            hook(*arguments, **named)
        except Exception:  # noqa: BLE001  the promise of the client; a later version of the framework, perhaps
            pass

    # By hand: importing functools would be the slowest part of `import pyrometer`.
    safe.__name__, safe.__doc__ = hook.__name__, hook.__doc__
    return safe


def when_imported(name: str, callback: Callable[[Any], None]) -> None:
    """Call ``callback`` with the module ``name``: now if it is loaded, else as soon as the job has imported it.

    Raises:
        Exception: whatever ``callback`` raises, where the module is loaded already.
    """
    module = sys.modules.get(name)
    if module is not None:
        callback(module)
    else:
        sys.meta_path.insert(0, _ImportFinder(name, callback))


def subscribers_of(owner: Any, name: str, wrap: Callable[..., Any]) -> weakref.WeakSet[Any]:
    """Return the subscribers of a function of ``owner``, which is wrapped for the first of them.

    Args:
        owner: the module or class that has the function.
        name: of the function.
        wrap: returns what replaces the function, given the function and its subscribers.

    Returns:
        The subscribers that the wrapper calls, as long as they live.
    """
    import functools  # noqa: PLC0415  torch has it
    import weakref  # noqa: PLC0415  as above

    function = getattr(owner, name)
    subscribers: weakref.WeakSet[Any] | None = getattr(function, SUBSCRIBERS, None)
    if subscribers is None:
        subscribers = weakref.WeakSet()
        wrapper = functools.wraps(function)(wrap(function, subscribers))
        setattr(wrapper, SUBSCRIBERS, subscribers)
        setattr(wrapper, _COMPILED_INSTEAD, function)
        setattr(owner, name, wrapper)
    return subscribers


def wrap_save(function: Callable[..., Any], subscribers: weakref.WeakSet[CheckpointSubscriber]) -> Callable[..., Any]:
    """Return ``function``, which writes a checkpoint, with its time in the subscribers' part ``checkpoint``."""

    def save(*arguments: Any, **named: Any) -> Any:
        parts = [part for subscriber in list(subscribers) if (part := subscriber.checkpoint_part()) is not None]
        for part in parts:
            part.__enter__()
        try:
            return function(*arguments, **named)
        finally:
            for part in parts:
                part.__exit__(None, None, None)

    return save


class _ImportFinder:
    """Finds one module as Python would, and has a callback run after it was executed."""

    def __init__(self, name: str, callback: Callable[[Any], None]) -> None:
        self.name = name
        self.callback = callback

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """See :class:`importlib.abc.MetaPathFinder`."""
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                spec.loader = _CallbackLoader(spec.loader, self.callback)  # type: ignore[assignment]  # acts as one
                return spec
        return None


class _CallbackLoader:
    """The module's own loader, with a callback after it; the loaded module shows no trace of it."""

    def __init__(self, loader: Any, callback: Callable[[Any], None]) -> None:
        self.loader = loader
        self.callback = callback

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)

    def exec_module(self, module: Any) -> None:
        """See :class:`importlib.abc.Loader`."""
        module.__spec__.loader = module.__loader__ = self.loader
        self.loader.exec_module(module)
        self.callback(module)
