"""The job that tests/integrations/test_deaths.py lets die: it runs under torchrun."""

from __future__ import annotations

import datetime as dt
import os
import time
from pathlib import Path

import torch
from torch.nn.parallel import DistributedDataParallel

import pyrometer

ORDERS = Path(os.environ["ORDERS"])


def told(order: str) -> bool:
    """Return whether this rank is to do so."""
    return torch.distributed.get_rank() == int(os.environ["VICTIM"]) and (ORDERS / order).exists()


class Rows(torch.utils.data.Dataset):  # type: ignore[type-arg,misc,unused-ignore]
    """Random rows; a worker of the data loader may be told to stick."""

    def __len__(self) -> int:
        return 1000000

    def __getitem__(self, index: int) -> torch.Tensor:
        if told("stick"):
            time.sleep(1e6)
        return torch.randn(8)


def main() -> None:
    """Train until told otherwise."""
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for batch in torch.utils.data.DataLoader(Rows(), batch_size=1, num_workers=int(os.environ["WORKERS"])):
        loss = model(batch).square().mean()
        time.sleep(0.6 if told("slow") else 0.3)
        if told("raise"):
            raise ValueError("no such token")
        if told("lose_gpu"):
            raise torch.AcceleratorError("CUDA error: unspecified launch failure")
        if told("return"):
            return
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    pyrometer.auto(os.environ["RUN"], tokens_per_step=4)
    torch.distributed.init_process_group("gloo", timeout=dt.timedelta(seconds=float(os.environ["LIMIT"])))
    try:
        main()
    except RuntimeError:
        if os.environ.get("ABORT"):  # as NCCL's watchdog does after its time-out
            os.abort()
        raise
