"""The training loops of the jobs: DDP, FSDP, tensor parallel and collectives by hand under ``auto``, and trainers.

Each truly trains a tiny model over Gloo. Its computing is replaced by waiting, a third of it in ``forward`` and the
rest in ``backward``, so that many processes share two cores without slowing each other.
"""

from __future__ import annotations

import importlib
import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pyrometer
from pyrometer_simulator.torch_jobs.spec import RANKS_PER_NODE, JobSpec

WIDTH = 16
BATCHES = 1_000_000
_FORWARD = 1 / 3


def play(spec: JobSpec, rank: int) -> None:
    """Train until the process ends."""
    {
        "ddp": _train_ddp, "allreduce": _train_by_hand, "fsdp": _train_fsdp, "tensor": _train_tensor_parallel,
        "huggingface": _train_huggingface, "lightning": _train_lightning, "deepspeed": _train_deepspeed,
        "torchtitan": _train_torchtitan,
    }[spec.kind](spec, rank)  # fmt: skip


def preload(kinds: set[str]) -> None:
    """Import what the loops need, so that processes that are forked later have it."""
    importlib.import_module("torch.distributed")
    importlib.import_module("torch.utils.data")
    if "huggingface" in kinds:
        importlib.import_module("accelerate")
        importlib.import_module("transformers").Trainer  # noqa: B018  imported when it is looked up
    if "lightning" in kinds:
        importlib.import_module("lightning.pytorch")
    if "deepspeed" in kinds:
        importlib.import_module("deepspeed")


def _paced(spec: JobSpec, rank: int) -> Any:  # noqa: ANN401  a torch.nn.Module
    """Return a model whose passes take the time of the job's pace."""
    torch: Any = importlib.import_module("torch")
    pace = spec.pace(rank)

    class Work(torch.autograd.Function):  # type: ignore[misc,name-defined,unused-ignore]
        @staticmethod
        def forward(context: Any, values: Any) -> Any:  # noqa: ANN401
            context.seconds = next(pace)
            time.sleep(_FORWARD * context.seconds)
            return values.clone()

        @staticmethod
        def backward(context: Any, gradient: Any) -> Any:  # noqa: ANN401
            time.sleep((1 - _FORWARD) * context.seconds)
            return gradient

    class Model(torch.nn.Module):  # type: ignore[misc,name-defined,unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Linear(WIDTH, WIDTH)
            self.second = torch.nn.Linear(WIDTH, 1)

        def forward(self, values: Any, **_: Any) -> Any:  # noqa: ANN401
            loss = self.second(Work.apply(self.first(values))).square().mean()
            return {"loss": loss} if spec.kind == "huggingface" else loss

    torch.manual_seed(0)
    return Model()


class Batches:
    """A dataset of random numbers; on the stuck rank it stops for good at its step."""

    def __init__(self, spec: JobSpec, rank: int) -> None:
        self._stuck_at = spec.stuck_at if rank == spec.stuck_rank else BATCHES
        self._count = 0
        self._named = spec.kind == "huggingface"

    def __len__(self) -> int:
        """Return more than any job takes."""
        return BATCHES

    def __getitem__(self, index: int) -> Any:  # noqa: ANN401  a tensor
        """Return a row of numbers."""
        self._count += 1
        if self._count > self._stuck_at:
            time.sleep(1e6)
        torch: Any = importlib.import_module("torch")
        row = torch.randn(WIDTH)
        return {"values": row} if self._named else row


def _join(spec: JobSpec) -> Any:  # noqa: ANN401  the module torch
    torch: Any = importlib.import_module("torch")
    torch.distributed.init_process_group("gloo")
    if spec.client:
        pyrometer.auto(spec.run, tokens_per_step=spec.ranks)
    return torch


def _dump_on_request(folder: Path, rank: int) -> None:
    """Write a dump of the Flight Recorder as long as the file ``dump`` is there, as PyTorch's watchdog of NCCL does."""
    recorder: Any = importlib.import_module("torch._C._distributed_c10d")
    while True:
        if (folder / "dump").exists():
            new = folder / f"new.{rank}.part"
            new.write_bytes(recorder._dump_fr_trace())  # noqa: SLF001  there is no other way to it
            new.rename(folder / f"rank_{rank}")
        time.sleep(1)


def _loader(torch: Any, spec: JobSpec, rank: int) -> Any:  # noqa: ANN401
    return torch.utils.data.DataLoader(Batches(spec, rank), batch_size=1)


def _train(torch: Any, spec: JobSpec, rank: int, model: Any) -> None:  # noqa: ANN401
    if spec.dumps:
        threading.Thread(target=_dump_on_request, args=(Path(spec.dumps), rank), daemon=True).start()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for batch in _loader(torch, spec, rank):
        model(batch).backward()
        if spec.kind == "allreduce":
            for parameter in model.parameters():
                torch.distributed.all_reduce(parameter.grad)
        optimizer.step()
        optimizer.zero_grad()


def _train_ddp(spec: JobSpec, rank: int) -> None:
    torch = _join(spec)
    _train(torch, spec, rank, torch.nn.parallel.DistributedDataParallel(_paced(spec, rank)))


def _train_by_hand(spec: JobSpec, rank: int) -> None:
    torch = _join(spec)
    _train(torch, spec, rank, _paced(spec, rank))


def _mesh(spec: JobSpec) -> Any:  # noqa: ANN401
    return importlib.import_module("torch.distributed.device_mesh").init_device_mesh("cpu", (spec.ranks,))


def _train_fsdp(spec: JobSpec, rank: int) -> None:
    torch = _join(spec)
    model = _paced(spec, rank)
    importlib.import_module("torch.distributed.fsdp").fully_shard(model, mesh=_mesh(spec))
    _train(torch, spec, rank, model)


def _train_tensor_parallel(spec: JobSpec, rank: int) -> None:
    torch = _join(spec)
    parallel: Any = importlib.import_module("torch.distributed.tensor.parallel")
    model = _paced(spec, rank)
    plan = {"first": parallel.ColwiseParallel(), "second": parallel.RowwiseParallel()}
    _train(torch, spec, rank, parallel.parallelize_module(model, _mesh(spec), plan))


def _train_deepspeed(spec: JobSpec, rank: int) -> None:
    torch: Any = importlib.import_module("torch")
    deepspeed: Any = importlib.import_module("deepspeed")
    # Collectives through shared memory, compiled for a minute: Gloo's are those to be seen.
    vars(importlib.import_module("deepspeed.comm.torch"))["build_shm_op"] = lambda: None
    deepspeed.init_distributed("gloo")
    model = _paced(spec, rank)
    config = {
        "train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 1},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
    }  # fmt: skip
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    pyrometer.watch(engine, "step", counter="global_steps", run=spec.run, tokens_per_step=spec.ranks)
    for batch in _loader(torch, spec, rank):
        engine.backward(engine(batch))
        engine.step()


def _train_torchtitan(spec: JobSpec, rank: int) -> None:
    """Train as torchtitan's trainer does, which needs GPUs, with FSDP 2 and its structured logger."""
    os.environ["TITAN_STRUCT_LOGGER_HANDLERS"] = "pyrometer.torchtitan.handler"
    os.environ["PYROMETER_SETTINGS"] = f"run={spec.run} tokens_per_step={spec.ranks}"
    torch: Any = importlib.import_module("torch")
    logger: Any = importlib.import_module("torchtitan.observability.structured_logger")
    torch.distributed.init_process_group("gloo")
    logger.init_structured_logger(source="trainer", output_dir=tempfile.mkdtemp(), rank=rank)
    model = _paced(spec, rank)
    importlib.import_module("torch.distributed.fsdp").fully_shard(model, mesh=_mesh(spec))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step, batch in enumerate(_loader(torch, spec, rank), 1):
        logger.set_step(step)
        with logger.log_trace_span("step"):
            with logger.log_trace_span("fwd_bwd"):
                model(batch).backward()
            with logger.log_trace_span("optim"):
                optimizer.step()
                optimizer.zero_grad()


def _train_huggingface(spec: JobSpec, rank: int) -> None:
    transformers: Any = importlib.import_module("transformers")
    hook: Any = importlib.import_module("pyrometer.huggingface")
    arguments = transformers.TrainingArguments(
        output_dir=tempfile.mkdtemp(), use_cpu=True, report_to=[], per_device_train_batch_size=1, max_steps=BATCHES,
        save_strategy="no", disable_tqdm=True, logging_steps=10, remove_unused_columns=False, ddp_backend="gloo",
    )  # fmt: skip
    transformers.Trainer(
        model=_paced(spec, rank), args=arguments, train_dataset=Batches(spec, rank),
        callbacks=[hook.callback(run=spec.run, tokens_per_step=spec.ranks)],
    ).train()  # fmt: skip


def _train_lightning(spec: JobSpec, rank: int) -> None:
    torch: Any = importlib.import_module("torch")
    lightning: Any = importlib.import_module("lightning.pytorch")
    hook: Any = importlib.import_module("pyrometer.lightning")

    class Module(lightning.LightningModule):  # type: ignore[misc,name-defined,unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.model = _paced(spec, rank)

        def training_step(self, batch: Any, _index: int) -> Any:  # noqa: ANN401
            return self.model(batch)

        def configure_optimizers(self) -> Any:  # noqa: ANN401
            return torch.optim.SGD(self.parameters(), lr=1e-3)

    trainer = lightning.Trainer(
        accelerator="cpu", devices=RANKS_PER_NODE, num_nodes=spec.nodes, strategy="ddp", logger=False,
        enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False, max_steps=BATCHES,
        default_root_dir=tempfile.mkdtemp(), callbacks=[hook.callback(run=spec.run, tokens_per_step=spec.ranks)],
    )  # fmt: skip
    trainer.fit(Module(), _loader(torch, spec, rank))


def environment(spec: JobSpec, rank: int, port: int) -> dict[str, str]:
    """Return the variables that torchrun would set for a rank."""
    found = {
        "RANK": rank, "LOCAL_RANK": rank % RANKS_PER_NODE, "WORLD_SIZE": spec.ranks, "LOCAL_WORLD_SIZE": RANKS_PER_NODE,
        "GROUP_RANK": rank // RANKS_PER_NODE, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
        "TORCHELASTIC_RUN_ID": spec.run, "GLOO_SOCKET_IFNAME": "lo",
    }  # fmt: skip
    return {name: str(value) for name, value in found.items()}
