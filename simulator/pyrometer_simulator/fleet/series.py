"""The cluster's series at one moment, as lines of text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pyrometer_simulator.fleet.plan import DRIVER, MODEL, PARTS, REASONS, Plan

Array = npt.NDArray[np.float64]
# Counters began here: any fixed moment before the history that is written.
EPOCH = 1_700_000_000.0


@dataclass(frozen=True)
class Family:
    """Series of one name: the text of each with its labels, and their values at a moment; NaN is absent."""

    name: str
    series: Sequence[str]
    values: Callable[[float], Array]
    slow: bool = False


class Fleet:
    """All series of a planned cluster."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        random = np.random.default_rng(7)
        size = plan.nodes * plan.gpus
        self._random = random
        self._node = np.repeat(np.arange(plan.nodes), plan.gpus)
        self._gpu = np.tile(np.arange(plan.gpus), plan.nodes)
        self._warm = random.normal(0.0, 2.0, size)
        self._phase = random.uniform(0.0, 6.28, size)
        self._busy = self._node < plan.nodes - plan.idle
        names = plan.names()
        faults = plan.faults
        self._hot = self._mark(faults.hot)
        self._lost = self._mark(faults.lost)
        self._dead = names.index(faults.dead) if faults.dead in names else -1
        self._gone = self._lost | (self._node == self._dead)
        self._target = [
            f'cluster="{plan.cluster}",node="{name}",rack="{plan.rack(at)}",instance="{name}:9935",job="node"'
            for at, name in enumerate(names)
        ]

    def _mark(self, where: tuple[str, int] | None) -> npt.NDArray[np.bool_]:
        if where is None:
            return np.zeros(len(self._node), dtype=bool)
        at = self.plan.names().index(where[0])
        return (self._node == at) & (self._gpu == where[1])

    def families(self) -> Iterator[Family]:
        """Everything that the nodes' exporters and Prometheus itself would tell."""
        yield from self._targets()
        yield from self._dcgm()
        yield from self._gpus()
        yield from self._ports()
        yield from self._ranks()

    def _targets(self) -> Iterator[Family]:
        count = self.plan.nodes
        dead = np.arange(count) == self._dead
        exporter = [f'{target},exporter="node",version="0.1.0"' for target in self._target]
        yield self._family("up", self._target, lambda _: np.where(dead, 0.0, 1.0))
        yield self._family(
            "scrape_duration_seconds", self._target, lambda t: 0.008 + 0.002 * np.sin(t + self._phase[:count])
        )
        alive = np.where(dead, np.nan, 1.0)
        yield self._family("pyrometer_exporter_build_info", exporter, lambda _: alive, slow=True)
        yield self._family("process_resident_memory_bytes", self._target, lambda _: alive * 36e6, slow=True)
        yield self._family("process_cpu_seconds_total", self._target, lambda t: alive * (t - EPOCH) * 0.002)
        for collector in ("gpu", "nic", "train", "kernel"):
            labels = [f'{target},collector="{collector}"' for target in self._target]
            yield self._family("pyrometer_collector_success", labels, lambda _: alive)
            yield self._family("pyrometer_collector_duration_seconds", labels, lambda _: alive * 0.003)

    def _family(
        self, name: str, labels: Sequence[str], values: Callable[[float], Array], *, slow: bool = False
    ) -> Family:
        return Family(name, [f"{name}{{{each}}}" for each in labels], values, slow)

    def _identity(self) -> tuple[list[str], list[str]]:
        """Labels of each GPU as dcgm-exporter has them, and as ours."""
        dcgm, ours = [], []
        for at, gpu in zip(self._node, self._gpu, strict=True):
            uuid = f"GPU-{at:08x}-0000-4000-8000-{gpu:012x}"
            bus = f"00000000:{0x18 + 0x10 * gpu:02X}:00.0"
            target = self._target[at]
            dcgm.append(
                f'{target},gpu="{gpu}",UUID="{uuid}",pci_bus_id="{bus}",device="nvidia{gpu}",modelName="{MODEL}",'
                f'Hostname="{self.plan.names()[at] if self.plan.nodes < 64 else "h"}",DCGM_FI_DRIVER_VERSION="{DRIVER}"'
            )
            ours.append(f'{target},gpu="{gpu}",uuid="{uuid}"')
        return dcgm, ours

    def _busy_or(self, busy: float, idle: float, hot: float) -> Array:
        return np.where(self._gone, np.nan, np.where(self._hot, hot, np.where(self._busy, busy, idle)))

    def _dcgm(self) -> Iterator[Family]:
        labels, _ = self._identity()
        wave = lambda t, much: much * np.sin(t / 97 + self._phase)  # noqa: E731
        heat, clock, power = self._busy_or(58, 31, 91), self._busy_or(1980, 345, 1200), self._busy_or(655, 95, 430)
        tensor = self._busy_or(0.47, 0.0, 0.47)
        width = np.where(self._gone, np.nan, 16.0)
        none = np.where(self._gone, np.nan, 0.0)
        for name, values, slow in (
            ("DCGM_FI_DEV_GPU_TEMP", lambda t: np.round(heat + self._warm + wave(t, 1.0)), False),
            ("DCGM_FI_DEV_SM_CLOCK", lambda t: clock + 15 * np.round(wave(t, 0.6)), False),
            ("DCGM_FI_DEV_POWER_USAGE", lambda t: np.round(power + 4 * self._warm + wave(t, 12.0), 1), False),
            ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", lambda t: np.clip(np.round(tensor + wave(t, 0.01), 4), 0, 1), False),
            ("DCGM_FI_DEV_GPU_UTIL", lambda _: self._busy_or(99, 0, 99), True),
            ("DCGM_FI_DEV_MEMORY_TEMP", lambda t: np.round(heat + 8 + self._warm + wave(t, 1.0)), True),
            ("DCGM_FI_DEV_FB_USED", lambda _: self._busy_or(71000, 600, 71000), True),
            ("DCGM_FI_DEV_MAX_SM_CLOCK", lambda _: np.where(self._gone, np.nan, 1980.0), True),
            ("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", lambda _: np.where(self._gone, np.nan, 700.0), True),
            ("DCGM_FI_DEV_PCIE_LINK_WIDTH", lambda _: width, True),
            ("DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH", lambda _: width, True),
            ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", lambda _: none, True),
            ("DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", lambda _: none, True),
            ("DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", lambda _: none, True),
            ("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", lambda _: none, True),
            ("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", lambda _: none, True),
            ("DCGM_FI_DEV_ROW_REMAP_PENDING", lambda _: none, True),
        ):
            yield self._family(name, labels, values, slow=slow)

    def _gpus(self) -> Iterator[Family]:
        _, labels = self._identity()
        up = np.where(self._lost, 0.0, np.where(self._node == self._dead, np.nan, 1.0))
        here = np.where(self._gone, np.nan, 1.0)
        info = [
            f'{each},pci_bus_id="0000:18:00.0",model="{MODEL}",serial="1",vbios="96.00",driver="{DRIVER}"'
            for each in labels
        ]
        yield self._family("pyrometer_gpu_up", labels, lambda _: up)
        yield self._family("pyrometer_gpu_info", info, lambda _: here, slow=True)
        jobs = [f'{each},job_id="4711",user="ml",job_name=""' for each in labels]
        yield self._family("pyrometer_gpu_job_info", jobs, lambda _: np.where(self._busy, here, np.nan), slow=True)
        yield self._family("pyrometer_gpu_energy_joules_total", labels, lambda t: here * 600 * (t - EPOCH), slow=True)
        rates = {"power_cap": 0.3 * self._busy, "gpu_idle": 1.0 * ~self._busy, "hw_thermal": 0.8 * self._hot}
        for reason in REASONS:
            rate = rates.get(reason, np.zeros(len(here)))
            named = [f'{each},reason="{reason}"' for each in labels]
            yield self._family(
                "pyrometer_gpu_clock_event_seconds_total",
                named,
                lambda t, rate=rate: here * np.round(rate * (t - EPOCH), 3),
            )
        for xid, kind in (("79", "critical"), ("48", "critical")):
            named = [f'{each},xid="{xid}",class="{kind}"' for each in labels]
            count = np.where(self._lost & (xid == "79"), 1.0, 0.0)
            yield self._family(
                "pyrometer_gpu_xid_errors_total", named, lambda _, count=count: here * 0 + count, slow=True
            )

    def _ports(self) -> Iterator[Family]:
        plan = self.plan
        where = [(node, port) for node in range(plan.nodes) for port in range(plan.ports)]
        labels = [f'{self._target[node]},device="mlx5_{port}",port="1"' for node, port in where]
        nodes, ports = np.array(where).T
        here = np.where(nodes == self._dead, np.nan, 1.0)
        busy = nodes < plan.nodes - plan.idle
        flapping = np.zeros(len(labels), dtype=bool)
        if plan.faults.flapping:
            name, device = plan.faults.flapping
            flapping = (nodes == plan.names().index(name)) & (ports == device)
        down = lambda t: flapping & (t % 120 < 15)  # noqa: E731
        info = [f'{each},netdev="ib{port}",pci_bus_id="0000:1a:00.0",guid="{node:04x}:{port}",link_layer="InfiniBand",'
                f'driver="mlx5_core",firmware="28.39"' for each, (node, port) in zip(labels, where, strict=True)]  # fmt: skip
        yield self._family("pyrometer_nic_info", info, lambda _: here, slow=True)
        yield self._family("pyrometer_nic_link_up", labels, lambda t: here * np.where(down(t), 0.0, 1.0))
        yield self._family("pyrometer_nic_expected_up", labels, lambda _: here, slow=True)
        yield self._family(
            "pyrometer_nic_link_rate_bits_per_second",
            labels,
            lambda t: np.where(down(t), np.nan, here * 4e11),
            slow=True,
        )
        yield self._family("pyrometer_nic_link_rate_max_bits_per_second", labels, lambda _: here * 4e11, slow=True)
        yield self._family(
            "pyrometer_nic_link_down_events_total", labels, lambda t: here * flapping * np.floor((t - EPOCH) / 120)
        )
        for way in ("received", "transmitted"):
            name = f"pyrometer_nic_port_data_{way}_bytes_total"
            yield self._family(name, labels, lambda t: here * np.round(busy * 14e9 * (t - EPOCH)))
        yield self._family(
            "pyrometer_nic_port_transmit_wait_total", labels, lambda t: here * np.round(busy * 2e5 * (t - EPOCH))
        )
        for name, rate in (
            ("pyrometer_nic_symbol_error_total", 0.05), ("pyrometer_nic_link_error_recovery_total", 1 / 120),
            ("pyrometer_nic_port_errors_received_total", 0.02), ("pyrometer_nic_local_ack_timeout_errors_total", 0.5),
            ("pyrometer_nic_packet_sequence_errors_total", 0.1), ("pyrometer_nic_req_transport_retries_exceeded_total", 0.0),
        ):  # fmt: skip
            yield self._family(
                name, labels, lambda t, rate=rate: here * np.floor(flapping * rate * (t - EPOCH)), slow=True
            )

    def _ranks(self) -> Iterator[Family]:
        for number, run in enumerate(self.plan.runs()):
            count = run.nodes * self.plan.gpus
            where = [(run.first + rank // self.plan.gpus, rank % self.plan.gpus) for rank in range(count)]
            labels = [
                f'{self._target[node]},run="{run.name}",attempt="1",rank="{rank}"'
                for rank, (node, _) in enumerate(where)
            ]
            here = np.array([np.nan if node == self._dead else 1.0 for node, _ in where])
            slow = np.zeros(count, dtype=bool)
            if number == 0 and self.plan.faults.straggler is not None:
                slow[min(self.plan.faults.straggler, count - 1)] = True
            info = [
                f'{each},local_rank="{gpu}",gpu="{gpu}",uuid="GPU-{node:08x}-0000-4000-8000-{gpu:012x}",'
                f'stage="{rank * 4 // count}",replica="{rank % 4}"'
                for rank, (each, (node, gpu)) in enumerate(zip(labels, where, strict=True))
            ]
            steps = lambda t, run=run: np.floor((t - EPOCH) / run.step)  # noqa: E731
            yield self._family("pyrometer_train_rank_info", info, lambda _, here=here: here, slow=True)
            yield self._family("pyrometer_train_steps_total", labels, lambda t, h=here, s=steps: h * s(t))
            yield self._family(
                "pyrometer_train_step_seconds_total", labels, lambda t, h=here: h * (t - EPOCH), slow=True
            )
            yield self._family(
                "pyrometer_train_tokens_total",
                labels,
                lambda t, h=here, s=steps, n=count: h * s(t) * np.floor(4194304 / n),
                slow=True,
            )
            yield self._family(
                "pyrometer_train_last_step_timestamp_seconds", labels, lambda t, h=here, run=run: h * (t - t % run.step)
            )
            for part, share in PARTS.items():
                spread = share * (1 + 0.02 * np.sin(self._phase[:count]))
                if part == "wait":
                    spread = np.where(slow, 0.02, spread)
                if part == "backward":
                    spread = np.where(slow, spread + 0.22, spread)
                named = [f'{each},part="{part}"' for each in labels]
                yield self._family(
                    "pyrometer_train_step_part_seconds_total",
                    named,
                    lambda t, h=here, s=spread: h * np.round(s * (t - EPOCH), 4),
                )
            first = [self._target[run.first]]
            config = [
                f'{first[0]},run="{run.name}",attempt="1",world_size="{count}",model="{run.name}",convention="palm",dtype="bf16",'
                f'gpu_model="{MODEL}",global_batch_size="1024",micro_batch_size="1",sequence_length="4096",recompute="none",job_id="4711"'
            ]
            yield self._family("pyrometer_train_run_info", config, lambda _: np.ones(1), slow=True)
