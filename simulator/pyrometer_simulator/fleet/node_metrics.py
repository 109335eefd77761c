"""Metrics of nodes, GPUs and ports."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from pyrometer_simulator.fleet.plan import DRIVER, DROP, MODEL, REASONS, Plan
from pyrometer_simulator.fleet.series import (
    Array,
    Family,
    Values,
    counter,
    counter_with_turn,
    event_counter,
    family,
    mask_of,
    nan_where,
    oscillating,
)

_FLAP_EVERY = 120
_FLAP_SECONDS = 15


class NodeMetrics:
    """Metrics of a planned cluster's node exporters, and of their scrapes."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        names = plan.names()
        faults = plan.faults
        self.dead = names.index(faults.dead) if faults.dead else -1
        self.targets = [
            f'cluster="{plan.cluster}",node="{name}",rack="{plan.rack(at)}",instance="{name}:9935",job="node"'
            for at, name in enumerate(names)
        ]
        random = np.random.default_rng(7)
        self._where = [(node, gpu) for node in range(plan.nodes) for gpu in range(plan.gpus)]
        nodes = np.array([node for node, _ in self._where])
        self._warm: Array = random.normal(0.0, 2.0, len(self._where))
        self._phase: Array = random.uniform(0.0, 6.28, len(self._where))
        self._busy = nodes < plan.nodes - plan.idle
        self._hot = mask_of(self._where, plan.index(faults.hot))
        self._lost = mask_of(self._where, plan.index(faults.lost))
        self._silent = nodes == self.dead
        self._gone = self._lost | self._silent
        self._memory: Array = np.where(mask_of(self._where, plan.index(faults.memory)), 1.0, 0.0)
        self._killed = np.array([1.0 * (name == faults.kernel) for name in names])

    def exporters(self) -> Iterator[Family]:
        """Yield the targets' health and the exporters' own metrics."""
        dead = np.arange(self._plan.nodes) == self.dead
        alive = nan_where(dead, 1.0)
        yield family("up", self.targets, np.where(dead, 0.0, 1.0))
        yield family(
            "scrape_duration_seconds",
            self.targets,
            oscillating(np.full(len(dead), 0.008), self._phase[: len(dead)], 0.002, 5),
        )
        exporter = [f'{target},exporter="node",version="0.2.0"' for target in self.targets]
        yield family("pyrometer_exporter_build_info", exporter, alive, slow=True)
        yield family("process_resident_memory_bytes", self.targets, alive * 36e6, slow=True)
        yield family("process_cpu_seconds_total", self.targets, counter(alive * 0.002))
        for collector in ("gpu", "nic", "train", "kernel"):
            labels = [f'{target},collector="{collector}"' for target in self.targets]
            yield family("pyrometer_collector_success", labels, alive)
            yield family("pyrometer_collector_duration_seconds", labels, alive * 0.003, slow=True)
        kinds = [f'{target},kind="oom_kill"' for target in self.targets]
        killed = event_counter(alive * self._killed / 30, self._plan.faults.since)
        yield family("pyrometer_kernel_events_total", kinds, killed)
        yield family("pyrometer_kernel_log_lost_records_total", self.targets, alive * 0, slow=True)
        lost = [f'{self.targets[node]},collector="gpu",part="{gpu}",reason="gpu_is_lost"' for node, gpu in self._where]
        yield family("pyrometer_down_reason_info", lost, nan_where(~self._lost, 1.0))

    def _working(self, busy: float, idle: float, hot: float) -> Array:
        return nan_where(self._gone, np.where(self._hot, hot, np.where(self._busy, busy, idle)))

    def _tensor(self) -> Array:
        """Return the tensor cores' activity: proportional to their run's speed, 0 while it is stopped."""
        nodes = np.array([node for node, _ in self._where])
        busy = self._working(0.47, 0.01, 0.47)
        for run in self._plan.runs():
            share = 1 / DROP if self._plan.slowest(run) is not None else float(math.isinf(self._plan.stopped(run)))
            busy = np.where((nodes >= run.first) & (nodes < run.first + run.nodes), busy * share, busy)
        return busy

    def dcgm(self) -> Iterator[Family]:
        """Yield the GPUs' metrics under dcgm-exporter's names."""
        labels = [
            f'{self.targets[node]},gpu="{gpu}",UUID="{gpu_uuid(node, gpu)}",'
            f'pci_bus_id="00000000:{0x18 + 16 * gpu:02X}:00.0",'
            f'device="nvidia{gpu}",modelName="{MODEL}",Hostname="host",DCGM_FI_DRIVER_VERSION="{DRIVER}"'
            for node, gpu in self._where
        ]
        heat = self._working(58, 31, 91) + self._warm
        moving: dict[str, Values] = {
            "DCGM_FI_DEV_GPU_TEMP": oscillating(heat, self._phase, 1.0, 0),
            "DCGM_FI_DEV_SM_CLOCK": oscillating(self._working(1980, 345, 1200), self._phase, 9.0, 0),
            "DCGM_FI_DEV_POWER_USAGE": oscillating(self._working(655, 95, 430) + 4 * self._warm, self._phase, 12.0),
            "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": oscillating(self._tensor(), self._phase, 0.01, 4),
        }
        for name, values in moving.items():
            yield family(name, labels, values)
        for name, value in self._steady().items():
            yield family(name, labels, nan_where(self._gone, value), slow=True)

    def _steady(self) -> dict[str, Array | float]:
        return {
            "DCGM_FI_DEV_GPU_UTIL": self._working(99, 0, 99),
            "DCGM_FI_DEV_MEMORY_TEMP": np.round(self._working(58, 31, 91) + self._warm + 8),
            "DCGM_FI_DEV_FB_USED": self._working(71000, 600, 71000),
            "DCGM_FI_DEV_MAX_SM_CLOCK": 1980.0,
            "DCGM_FI_DEV_ENFORCED_POWER_LIMIT": 700.0,
            "DCGM_FI_DEV_PCIE_LINK_WIDTH": 16.0,
            "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH": 16.0,
            "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": self._memory,
            "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL": self._memory,
            "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL": 0.0,
            "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": 0.0,
            "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": 0.0,
            "DCGM_FI_DEV_ROW_REMAP_PENDING": 0.0,
        }

    def gpus(self) -> Iterator[Family]:
        """Yield the GPUs' metrics under our own names."""
        plan, since = self._plan, self._plan.faults.since
        labels = [f'{self.targets[node]},gpu="{gpu}",uuid="{gpu_uuid(node, gpu)}"' for node, gpu in self._where]
        here = nan_where(self._gone, 1.0)
        answering = nan_where(np.arange(plan.nodes) == self.dead, float(plan.gpus))
        # A GPU that falls off the bus under load stays in both counts until the driver is reloaded.
        for source in ("pci", "nvml"):
            present = [f'{target},source="{source}"' for target in self.targets]
            yield family("pyrometer_gpus_present", present, answering, slow=True)
        yield family("pyrometer_gpu_up", labels, nan_where(self._silent, np.where(self._lost, 0.0, 1.0)))
        # A lost GPU stays as it was when it was opened.
        parts = [
            f'{each},pci_bus_id="0000:{0x18 + 16 * gpu:02x}:00.0",model="{MODEL}",serial="16549{node:05d}{gpu:02d}",'
            f'vbios="96.00",driver="{DRIVER}"'
            for each, (node, gpu) in zip(labels, self._where, strict=True)
        ]
        yield family("pyrometer_gpu_info", parts, nan_where(self._silent, 1.0), slow=True)
        numbers = {
            node: 4711 + at for at, run in enumerate(plan.runs()) for node in range(run.first, run.first + run.nodes)
        }
        jobs = [
            f'{each},job_id="{numbers.get(node, 4711)}",user="ml",job_name=""'
            for each, (node, _) in zip(labels, self._where, strict=True)
        ]
        yield family("pyrometer_gpu_job_info", jobs, nan_where(~self._busy | self._gone, 1.0), slow=True)
        yield family("pyrometer_gpu_energy_joules_total", labels, counter(here * 600), slow=True)
        yield family("pyrometer_gpu_nvlink_transmitted_bytes_total", labels, counter(here * self._busy * 9e10, 0))
        yield family("pyrometer_gpu_pcie_received_bytes_total", labels, counter(here * self._busy * 6e9, 0), slow=True)
        replays = [f'{each},error="replay"' for each in labels]
        again = event_counter(self._memory / 30, since)
        yield family("pyrometer_gpu_pcie_errors_total", replays, lambda at: here * again(at), slow=True)
        shares = {"power_cap": 0.3 * self._busy, "gpu_idle": 1.0 * ~self._busy, "hw_thermal": 0.8 * self._hot}
        for reason in REASONS:
            named = [f'{each},reason="{reason}"' for each in labels]
            share = here * shares.get(reason, 0.0)
            before = share * ~self._hot
            yield family("pyrometer_gpu_clock_event_seconds_total", named, counter_with_turn(before, share, since))
        fallen = nan_where(self._silent, np.where(self._lost, 1.0, 0.0))
        yield family("pyrometer_gpu_xid_critical_errors_total", labels, fallen, slow=True)
        for xid in ("48", "79", "94"):
            named = [f'{each},xid="{xid}",class="critical"' for each in labels]
            count = np.where(self._lost & (xid == "79"), 1.0, 0.0)
            yield family("pyrometer_gpu_xid_errors_total", named, nan_where(self._silent, count), slow=True)

    def ports(self) -> Iterator[Family]:
        """Yield the metrics of the network ports, one port for each GPU."""
        plan, since = self._plan, self._plan.faults.since
        where = [(node, port) for node in range(plan.nodes) for port in range(plan.ports)]
        labels = [f'{self.targets[node]},device="mlx5_{port}",port="1"' for node, port in where]
        nodes = np.array([node for node, _ in where])
        here = nan_where(nodes == self.dead, 1.0)
        busy = here * (nodes < plan.nodes - plan.idle)
        flapping = mask_of(where, plan.index(plan.faults.flapping))
        speed: Array = np.where(mask_of(where, plan.index(plan.faults.narrow)), 2e11, 4e11)

        def up(at: float) -> Array:
            return np.where(flapping & ((at - since) % _FLAP_EVERY < _FLAP_SECONDS), 0.0, here)

        rest = 'pci_bus_id="0000:1a:00.0",link_layer="InfiniBand",driver="mlx5_core",firmware="28.39"'
        info = [
            f'{each},netdev="ib{port}",guid="{node:04x}:{port}",{rest}'
            for each, (node, port) in zip(labels, where, strict=True)
        ]
        yield family("pyrometer_nic_info", info, here, slow=True)
        yield family("pyrometer_nic_link_up", labels, up)
        yield family("pyrometer_nic_expected_up", labels, here, slow=True)
        yield family("pyrometer_nic_link_rate_bits_per_second", labels, here * speed, slow=True)
        yield family("pyrometer_nic_link_rate_max_bits_per_second", labels, here * 4e11, slow=True)
        yield family(
            "pyrometer_nic_counter_saturated",
            [f'{each},counter="symbol_error"' for each in labels],
            here * mask_of(where, plan.index(plan.faults.pinned)),
            slow=True,
        )
        yield family(
            "pyrometer_nic_link_down_events_total",
            labels,
            event_counter(here * flapping / _FLAP_EVERY, since),
        )
        for way in ("received", "transmitted"):
            yield family(f"pyrometer_nic_port_data_{way}_bytes_total", labels, counter(busy * 14e9, 0))
        yield family("pyrometer_nic_port_transmit_wait_total", labels, counter(busy * 2e5, 0))
        for name, rate in _ROCE.items():
            yield family(f"pyrometer_nic_{name}_total", labels, counter(busy * rate, 0), slow=True)
        worn = event_counter(here * flapping * 0.2, since)
        yield family("pyrometer_nic_fec_uncorrectable_blocks_total", labels, worn, slow=True)
        devices = [f'{self.targets[node]},device="mlx5_{port}",sensor="module0"' for node, port in where]
        heat = here * np.where(flapping, 74.0, 52.0)
        yield family("pyrometer_nic_temperature_celsius", devices, heat, slow=True)
        for name, rate in _PORT_ERRORS.items():
            yield family(
                f"pyrometer_nic_{name}_total",
                labels,
                event_counter(here * flapping * rate, since),
                slow=True,
            )


_ROCE = {
    "fec_corrected_blocks": 900.0,
    "roce_adp_retransmits": 0.0,
    "out_of_sequence_packets_received": 0.0,
    "np_ecn_marked_roce_packets_received": 3.0,
    "rp_cnp_packets_handled": 3.0,
    "tx_pause_storm_warning_events": 0.0,
}
_PORT_ERRORS = {
    "symbol_error": 0.05,
    "link_error_recovery": 1 / _FLAP_EVERY,
    "port_errors_received": 0.02,
    "local_ack_timeout_errors": 0.5,
    "packet_sequence_errors": 0.1,
    "req_transport_retries_exceeded": 0.0,
}


def gpu_uuid(node: int, gpu: int) -> str:
    """Return the UUID of the GPU of a node, by its number and the node's index."""
    return f"GPU-{node:08x}-0000-4000-8000-{gpu:012x}"
