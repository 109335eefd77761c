"""Training-side client: one fixed-size record per step into shared memory, read by the node exporter.

    import pyrometer

    run = pyrometer.start(run="llama-8b", flops_per_token=51.47e9, tokens_per_step=4_194_304)
    for batch in loader:
        with run.step():
            with run.part("data"):
                ...
            ...
            run.record(loss=loss)   # a number you already have on the CPU
    run.close()

Without touching the loop: ``pyrometer.auto(...)`` for PyTorch, ``pyrometer.watch(...)`` for the step function of any
trainer, and the modules ``pyrometer.composer``, ``huggingface``, ``jax``, ``lightning``, ``ray``, ``torchtitan``,
``torchtune`` and ``verl`` for these.

Nothing here raises into the training loop, blocks, locks, starts threads or opens sockets; where the ring can't be
made, the same calls do nothing. It needs nothing but the standard library.
"""

from pyrometer._auto import auto, watch
from pyrometer._run import Run
from pyrometer._start import start
from pyrometer.ring import PARTS, TAGS

__all__ = ["PARTS", "TAGS", "Run", "auto", "start", "watch"]
