"""Metrics of nodes, GPUs and ports."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from pyrometer_simulator import vocabulary
from pyrometer_simulator.fleet.plan import DROP, REASONS, Plan
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
    rows,
    with_labels,
)
from pyrometer_simulator.vocabulary import text

_FLAP_EVERY = 120
_FLAP_SECONDS = 15
# GPUs that share an NVLink domain: nine nodes of eight.
_DOMAIN = 9


class NodeMetrics:
    """Metrics of a planned cluster's node exporters, and of their scrapes.

    Attributes:
        dead: the node whose exporter is down; -1 for none.
        targets: the nodes' labels.
        alive: 1 for each node, NaN for the dead one.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        names, faults = plan.names(), plan.faults
        self.dead = names.index(faults.dead) if faults.dead else -1
        self.targets = [
            text(vocabulary.target(plan.cluster, name, plan.rack(place))) for place, name in enumerate(names)
        ]
        self.alive = nan_where(np.arange(plan.nodes) == self.dead, 1.0)
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
        self._here = nan_where(self._gone, 1.0)
        self._memory: Array = np.where(mask_of(self._where, plan.index(faults.memory)), 1.0, 0.0)
        self._killed = np.array([1.0 * (name == faults.kernel) for name in names])

    def exporters(self) -> Iterator[Family]:
        """Yield the targets' health and the exporters' own metrics."""
        alive, targets = self.alive, self.targets
        took = oscillating(np.full(len(alive), 0.008), self._phase[: len(alive)], 0.002, 5)
        killed = event_counter(alive * self._killed / 30, self.plan.faults.since)
        yield from rows(targets, {"up": np.nan_to_num(alive), "scrape_duration_seconds": took})
        build = with_labels(targets, exporter="node", version="0.2.0")
        yield family("pyrometer_exporter_build_info", build, alive, slow=True)
        yield family("process_resident_memory_bytes", targets, alive * 36e6, slow=True)
        yield family("process_cpu_seconds_total", targets, counter(alive * 0.002))
        for collector in ("gpu", "nic", "train", "kernel"):
            labels = with_labels(targets, collector=collector)
            yield family("pyrometer_collector_success", labels, alive)
            yield family("pyrometer_collector_duration_seconds", labels, alive * 0.003, slow=True)
        yield family("pyrometer_kernel_events_total", with_labels(targets, kind="oom_kill"), killed)
        yield family("pyrometer_kernel_log_lost_records_total", targets, alive * 0, slow=True)
        lost = [f'{self.targets[node]},collector="gpu",part="{gpu}",reason="gpu_is_lost"' for node, gpu in self._where]
        yield family("pyrometer_down_reason_info", lost, nan_where(~self._lost, 1.0))

    def _working(self, busy: float, idle: float, hot: float) -> Array:
        return nan_where(self._gone, np.where(self._hot, hot, np.where(self._busy, busy, idle)))

    def _tensor(self) -> Array:
        """Return the tensor cores' activity: proportional to their run's speed, 0 while it is stopped."""
        nodes = np.array([node for node, _ in self._where])
        busy = self._working(0.47, 0.01, 0.47)
        for run in self.plan.runs():
            share = 1 / DROP if self.plan.slowest(run) is not None else float(math.isinf(self.plan.stopped(run)))
            busy = np.where((nodes >= run.first) & (nodes < run.first + run.nodes), busy * share, busy)
        return busy

    def dcgm(self) -> Iterator[Family]:
        """Yield the GPUs' metrics under dcgm-exporter's names."""
        labels = [f"{self.targets[node]},{text(vocabulary.dcgm(node, gpu, 'host'))}" for node, gpu in self._where]
        heat, here = self._working(58, 31, 91) + self._warm, self._here
        moving: dict[str, Values] = {
            "DCGM_FI_DEV_GPU_TEMP": oscillating(heat, self._phase, 1.0, 0),
            "DCGM_FI_DEV_SM_CLOCK": oscillating(self._working(1980, 345, 1200), self._phase, 9.0, 0),
            "DCGM_FI_DEV_POWER_USAGE": oscillating(self._working(655, 95, 430) + 4 * self._warm, self._phase, 12.0),
            "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": oscillating(self._tensor(), self._phase, 0.01, 4),
            "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": self._replays(),
        }
        steady: dict[str, Array | float] = {
            "DCGM_FI_DEV_GPU_UTIL": self._working(99, 0, 99),
            "DCGM_FI_DEV_MEMORY_TEMP": np.round(heat + 8),
            "DCGM_FI_DEV_FB_USED": self._working(71000, 600, 71000),
            "DCGM_FI_DEV_FB_TOTAL": 81559.0,
            "DCGM_FI_DEV_MAX_SM_CLOCK": 1980.0,
            "DCGM_FI_DEV_MEM_CLOCK": 2619.0,
            "DCGM_FI_DEV_GPU_TEMP_LIMIT": np.where(self._hot, -1.0, 27.0),
            "DCGM_FI_DEV_ENFORCED_POWER_LIMIT": 700.0,
            "DCGM_FI_DEV_PCIE_LINK_WIDTH": 16.0,
            "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH": 16.0,
            "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": self._memory,
            "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL": self._memory,
            "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL": 0.0,
            "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": 0.0,
            "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": 0.0,
            "DCGM_FI_DEV_ROW_REMAP_PENDING": 0.0,
            "DCGM_FI_DEV_ROW_REMAP_FAILURE": 0.0,
            "DCGM_FI_PROF_SM_ACTIVE": np.where(self._busy, 0.86, 0.01),
            "DCGM_FI_PROF_DRAM_ACTIVE": np.where(self._busy, 0.44, 0.0),
        }
        yield from rows(labels, moving)
        yield from rows(labels, {name: here * value for name, value in steady.items()}, slow=True)

    def _replays(self) -> Values:
        return event_counter(self._here * self._hot * 0.2, self.plan.faults.since)

    def gpus(self) -> Iterator[Family]:
        """Yield the GPUs' metrics under our own names."""
        plan, since, here, busy = self.plan, self.plan.faults.since, self._here, self._busy
        own = [f"{self.targets[node]},{text(vocabulary.gpu(node, gpu))}" for node, gpu in self._where]
        # A GPU that falls off the bus under load stays in both counts until the driver is reloaded.
        for source in ("pci", "nvml"):
            present = with_labels(self.targets, source=source)
            yield family("pyrometer_gpus_present", present, self.alive * plan.gpus, slow=True)
        yield family("pyrometer_gpu_up", own, nan_where(self._silent, np.where(self._lost, 0.0, 1.0)))
        # A lost GPU stays as it was when it was opened.
        parts = [f"{self.targets[node]},{text(vocabulary.gpu_info(node, gpu))}" for node, gpu in self._where]
        yield family("pyrometer_gpu_info", parts, nan_where(self._silent, 1.0), slow=True)
        numbers = {
            node: vocabulary.JOB + number
            for number, run in enumerate(plan.runs())
            for node in range(run.first, run.first + run.nodes)
        }
        jobs = [
            f"{self.targets[node]},{text(vocabulary.gpu_job(node, gpu, numbers.get(node, vocabulary.JOB)))}"
            for node, gpu in self._where
        ]
        yield family("pyrometer_gpu_job_info", jobs, nan_where(~busy | self._gone, 1.0), slow=True)
        yield family("pyrometer_gpu_nvlink_transmitted_bytes_total", own, counter(here * busy * 9e10, 0))
        again, fallen = event_counter(self._memory / 30, since), np.where(self._lost, 1.0, 0.0)
        slow: dict[str, Values | Array] = {
            "pyrometer_gpu_energy_joules_total": counter(here * 600),
            "pyrometer_gpu_nvlink_received_bytes_total": counter(here * busy * 9e10, 0),
            "pyrometer_gpu_pcie_received_bytes_total": counter(here * busy * 6e9, 0),
            "pyrometer_gpu_pcie_transmitted_bytes_total": counter(here * busy * 4e9, 0),
            "pyrometer_gpu_nvlinks_up": here * 18,
            "pyrometer_gpu_recovery_action": here * 0,
            "pyrometer_gpu_fabric_state": here * 3,
            "pyrometer_gpu_xid_critical_errors_total": nan_where(self._silent, fallen),
        }
        yield from rows(own, slow, slow=True)
        replays = with_labels(own, error="replay")
        yield family("pyrometer_gpu_pcie_errors_total", replays, lambda at: here * again(at), slow=True)
        link = with_labels(own, link="4", error="replay")
        yield family("pyrometer_gpu_nvlink_link_errors_total", link, self._replays())
        domains = [
            f'{each},cluster_uuid="d0{node // _DOMAIN:06d}-0000-4000-8000-000000000000",clique="0"'
            for each, (node, _) in zip(own, self._where, strict=True)
        ]
        yield family("pyrometer_gpu_fabric_info", domains, here, slow=True)
        shares = {"power_cap": 0.3 * busy, "gpu_idle": 1.0 * ~busy, "hw_thermal": 0.8 * self._hot}
        for reason in REASONS:
            share = here * shares.get(reason, 0.0)
            values = counter_with_turn(share * ~self._hot, share, since)
            yield family("pyrometer_gpu_clock_event_seconds_total", with_labels(own, reason=reason), values)
        for xid in ("48", "79", "94"):
            labels = [f'{each},xid="{xid}",class="critical"' for each in own]
            count = nan_where(self._silent, fallen * (xid == "79"))
            yield family("pyrometer_gpu_xid_errors_total", labels, count, slow=True)

    def ports(self) -> Iterator[Family]:
        """Yield the metrics of the network ports, one port for each GPU."""
        plan, since = self.plan, self.plan.faults.since
        where = [(node, port) for node in range(plan.nodes) for port in range(plan.ports)]
        labels = [f"{self.targets[node]},{text(vocabulary.port(port))}" for node, port in where]
        nodes = np.array([node for node, _ in where])
        here = nan_where(nodes == self.dead, 1.0)
        busy = here * (nodes < plan.nodes - plan.idle)
        flapping, pinned, narrow = (
            mask_of(where, plan.index(fault))
            for fault in (plan.faults.flapping, plan.faults.pinned, plan.faults.narrow)
        )

        def up(at: float) -> Array:
            return np.where(flapping & ((at - since) % _FLAP_EVERY < _FLAP_SECONDS), 0.0, here)

        info = [f"{self.targets[node]},{text(vocabulary.nic_info(node, port))}" for node, port in where]
        yield family("pyrometer_nic_info", info, here, slow=True)
        moving: dict[str, Values] = {
            "pyrometer_nic_link_up": up,
            "pyrometer_nic_link_down_events_total": event_counter(here * flapping / _FLAP_EVERY, since),
            "pyrometer_nic_port_data_received_bytes_total": counter(busy * 14e9, 0),
            "pyrometer_nic_port_data_transmitted_bytes_total": counter(busy * 14e9, 0),
            "pyrometer_nic_port_transmit_wait_total": counter(busy * 2e5, 0),
        }
        slow: dict[str, Values | Array] = {
            "pyrometer_nic_expected_up": here,
            "pyrometer_nic_link_rate_bits_per_second": here * np.where(narrow, 2e11, 4e11),
            "pyrometer_nic_link_rate_max_bits_per_second": here * 4e11,
            **{f"pyrometer_nic_{name}_total": counter(busy * rate, 0) for name, rate in _ROCE.items()},
            **{
                f"pyrometer_nic_{name}_total": event_counter(here * flapping * rate, since)
                for name, rate in _PORT_ERRORS.items()
            },
        }
        yield from rows(labels, moving)
        yield from rows(labels, slow, slow=True)
        saturated = with_labels(labels, counter="symbol_error")
        yield family("pyrometer_nic_counter_saturated", saturated, here * pinned, slow=True)
        modules = [f'{self.targets[node]},device="mlx5_{port}",sensor="module0"' for node, port in where]
        yield family("pyrometer_nic_temperature_celsius", modules, here * np.where(flapping, 74.0, 52.0), slow=True)


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
    "fec_uncorrectable_blocks": 0.2,
}
