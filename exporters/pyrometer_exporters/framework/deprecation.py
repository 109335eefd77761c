"""Metrics that the release 0.3 deprecates and 0.4 removes, as docs/stability.md promises.

No profile serves them; ``--metrics.deprecated`` does until then. In 0.4 these rows go, and the families with them.
"""

NOTICE = "Deprecated in 0.3, removed in 0.4; served with --metrics.deprecated."

DEPRECATED = frozenset(
    [
        # A counter for each reason and GPU that no board, rule or page asks for: 88 series of a node.
        # pyrometer_gpu_clock_event_seconds_total is what throttling is judged by.
        "pyrometer_gpu_clock_events_total",
        # pyrometer_nccl_standstill_seconds has the same as an age.
        "pyrometer_nccl_communicator_last_launch_timestamp_seconds",
        # Only kernels before 4.5 have them, and no supported system does.
        "pyrometer_nic_legacy_data_transmitted_bytes_total",
        "pyrometer_nic_legacy_data_received_bytes_total",
        "pyrometer_nic_legacy_packets_transmitted_total",
        "pyrometer_nic_legacy_packets_received_total",
        "pyrometer_nic_legacy_unicast_packets_transmitted_total",
        "pyrometer_nic_legacy_unicast_packets_received_total",
        "pyrometer_nic_legacy_multicast_packets_transmitted_total",
        "pyrometer_nic_legacy_multicast_packets_received_total",
        # Parts of pyrometer_nic_port_packets_*; all but none of the traffic of training is multicast.
        "pyrometer_nic_unicast_packets_transmitted_total",
        "pyrometer_nic_unicast_packets_received_total",
        "pyrometer_nic_multicast_packets_transmitted_total",
        "pyrometer_nic_multicast_packets_received_total",
        # Switches count it; it is always 0 at a node.
        "pyrometer_nic_port_receive_switch_relay_errors_total",
        # Every end of a job counts here.
        "pyrometer_nic_req_cqes_flush_errors_total",
        "pyrometer_nic_resp_cqes_flush_errors_total",
        # Operations of the application by kind: no fault of the network shows in them.
        "pyrometer_nic_rx_write_requests_total",
        "pyrometer_nic_rx_read_requests_total",
        "pyrometer_nic_rx_atomic_requests_total",
        "pyrometer_nic_rx_dct_connect_requests_total",
        # Steps within pyrometer_nic_roce_slow_restart_used_total.
        "pyrometer_nic_roce_slow_restart_cnps_total",
        "pyrometer_nic_roce_slow_restart_total",
        # pyrometer_nic_carrier_down_count_total and its recoveries, once more.
        "pyrometer_nic_carrier_up_count_total",
        "pyrometer_nic_carrier_changes_total",
        # pyrometer_nic_link_down_reason_info has it in words, while it matters.
        "pyrometer_nic_physical_state_id",
        # Settings of the kernel that never explain a fault; the size of packets stays.
        "pyrometer_nic_interface_setting",
        "pyrometer_nic_lifespan_seconds",
    ]
)
