"""The reasons for the metrics that no board, rule or program of ours asks for: what an operator needs each for.

A metric without a user, a row here or a place in ``framework/deprecation.py`` fails a test; so does a needless row.
"""

REASONS = {
    "contract: every exporter, about itself": ("pyrometer_collector_duration_seconds",),
    "[Deployment](../deployment.md): counts would not survive a restart": ("pyrometer_exporter_state_writable",),
    "contract: whether the driver counts or the sampler estimates": (
        "pyrometer_gpu_clock_event_method_info", "pyrometer_gpu_clock_event_sampled_seconds_total",
    ),
    "doctor and GPU check: versions, processes and memory beside nvidia-smi's": (
        "pyrometer_gpu_versions_info", "pyrometer_gpu_inactive_row_remappings",
    ),
    "[Reset a GPU](../howto/reset-gpu.md): whether the exporter has released it": ("pyrometer_gpu_released",),
    "[DCGM](../dcgm.md): exact averages over any window, which DCGM's gauges cannot give": (
        "pyrometer_gpu_sm_cycles_total", "pyrometer_gpu_sm_active_cycles_total",
        "pyrometer_gpu_pipe_active_cycles_total",
    ),
    "contract: which of a GPU's NVLinks carries less": (
        "pyrometer_gpu_nvlink_link_transmitted_bytes_total", "pyrometer_gpu_nvlink_link_received_bytes_total",
    ),
    "runbooks of GPU memory: where errors were, and how much spare memory is used up": (
        "pyrometer_gpu_ecc_errors_total", "pyrometer_gpu_bank_remappings",
    ),
    "runbook of the NVLink fabric: why it is not ready": (
        "pyrometer_gpu_fabric_state", "pyrometer_gpu_fabric_status", "pyrometer_gpu_fabric_problem",
    ),
    "join: a MIG device's UUID in a pod to its GPU instance": ("pyrometer_gpu_mig_instance_info",),
    "runbook of Xids: the words of the last one, and what followed": (
        "pyrometer_gpu_xid_consequences_total", "pyrometer_gpu_xid_last_info",
    ),
    "whether a job without NCCL's numbers answers": ("pyrometer_nccl_ras_up",),
    "runbooks of links: why the link was lost, what was not counted, which state it is in": (
        "pyrometer_nic_link_last_down_info", "pyrometer_nic_link_down_ignored_total", "pyrometer_nic_state_id",
    ),
    "a counter that went back or no longer moves: restarted, read late or unreadable": (
        "pyrometer_nic_resets_total", "pyrometer_nic_read_age_seconds", "pyrometer_nic_unreadable_file_info",
    ),
    "two ends of a link that are set differently": ("pyrometer_nic_mtu_bytes", "pyrometer_nic_fec_info"),
    "contract: errors of a link, by where in the path they arose": (
        "pyrometer_nic_link_downed_total", "pyrometer_nic_carrier_down_count_total",
        "pyrometer_nic_port_receive_remote_physical_errors_total", "pyrometer_nic_port_discards_transmitted_total",
        "pyrometer_nic_port_discards_received_total", "pyrometer_nic_port_constraint_errors_transmitted_total",
        "pyrometer_nic_port_constraint_errors_received_total", "pyrometer_nic_local_link_integrity_errors_total",
        "pyrometer_nic_excessive_buffer_overrun_errors_total", "pyrometer_nic_vl15_dropped_total",
    ),
    "contract: traffic, under node_exporter's name": (
        "pyrometer_nic_port_packets_transmitted_total", "pyrometer_nic_port_packets_received_total",
    ),
    "contract: why a connection of RDMA died, or is about to": (
        "pyrometer_nic_implied_nak_seq_errors_total", "pyrometer_nic_rnr_nak_retry_packets_received_total",
        "pyrometer_nic_req_rnr_retries_exceeded_total", "pyrometer_nic_duplicate_requests_packets_total",
        "pyrometer_nic_out_of_buffer_drops_total", "pyrometer_nic_req_cqes_errors_total",
        "pyrometer_nic_resp_cqes_errors_total", "pyrometer_nic_req_remote_access_errors_total",
        "pyrometer_nic_req_remote_invalid_request_errors_total", "pyrometer_nic_resp_remote_access_errors_total",
        "pyrometer_nic_resp_local_length_errors_total",
    ),
    "contract: congestion of RoCE, and who ignores it": (
        "pyrometer_nic_roce_adp_retransmits_timeout_total", "pyrometer_nic_roce_slow_restart_used_total",
        "pyrometer_nic_rp_cnp_ignored_packets_received_total", "pyrometer_nic_np_cnp_packets_sent_total",
        "pyrometer_nic_rx_icrc_encapsulated_errors_total",
    ),
    "the interface of a port: storage and Ethernet nodes have no other counters": (
        "pyrometer_nic_rx_bytes_total", "pyrometer_nic_tx_bytes_total", "pyrometer_nic_rx_packets_total",
        "pyrometer_nic_tx_packets_total", "pyrometer_nic_rx_errors_total", "pyrometer_nic_tx_errors_total",
        "pyrometer_nic_rx_dropped_total", "pyrometer_nic_tx_dropped_total", "pyrometer_nic_rx_crc_errors_total",
    ),
    "contract: the driver's own counters and values": (
        "pyrometer_nic_driver_counter_total", "pyrometer_nic_driver_value",
    ),
    "losses of EFA, whose links report no state": (
        "pyrometer_nic_rx_drops_total", "pyrometer_nic_retrans_pkts_total", "pyrometer_nic_retrans_bytes_total",
        "pyrometer_nic_retrans_timeout_events_total", "pyrometer_nic_unresponsive_remote_events_total",
        "pyrometer_nic_impaired_remote_conn_events_total",
    ),
    "runbook of PCIe: the link's speed beside its width": (
        "pyrometer_nic_pcie_link_transfers_per_second", "pyrometer_nic_pcie_link_transfers_max_per_second",
    ),
    "what of a run's own data was not taken: no gap without a reason": (
        "pyrometer_train_rings_left_out", "pyrometer_train_batches_left_out_total",
        "pyrometer_train_consumers_left_out_total", "pyrometer_train_run_name_clash_info",
    ),
    "[Training](../training.md): why a run's MFU is missing, or not to be believed": (
        "pyrometer_train_gpus_unknown", "pyrometer_train_mfu_suspect", "pyrometer_train_peak_flops_per_second",
    ),
    "[Training](../training.md): numbers that a run records itself": (
        "pyrometer_train_skipped_steps_total", "pyrometer_train_batch_value",
    ),
    "contract: throughput of a run on GPUs without a known peak": (
        "pyrometer_train_flops_total", "pyrometer_train_batch_flops_per_second",
    ),
    "[Training job](../howto/training-job.md): the trainer's own figure beside ours": (
        "pyrometer_train_batch_reported_mfu_ratio", "pyrometer_train_batch_reported_flops_per_second",
    ),
    "join: names of Slurm's jobs": ("pyrometer_slurm_job_info",),
    "why a job waits: the nodes of its partition, by state": ("pyrometer_slurm_partition_nodes",),
    "runbooks of the fabric: events by kind, and whether the source still writes": (
        "pyrometer_ufm_events_total", "pyrometer_ufm_last_event_timestamp_seconds",
        "pyrometer_ufm_telemetry_last_sample_timestamp_seconds",
    ),
    "a message that did not come: where in the service it stopped, and why": (
        "pyrometer_alerting_webhook_requests_total", "pyrometer_alerting_webhook_rejected_total",
        "pyrometer_alerting_alerts_total", "pyrometer_alerting_inbox_depth", "pyrometer_alerting_incidents_open",
        "pyrometer_alerting_reconcile_corrections_total", "pyrometer_alerting_channel_unreachable",
        "pyrometer_alerting_socket_mode_connected", "pyrometer_alerting_outlet_calls_total",
        "pyrometer_alerting_outlet_depth", "pyrometer_alerting_outlet_dead", "pyrometer_alerting_pictures_total",
    ),
    "how often the diagnosis answers, and is right": (
        "pyrometer_alerting_diagnoses_total", "pyrometer_alerting_signatures_total",
        "pyrometer_alerting_judgements_total",
    ),
    "[Incidents](../incidents.md): whether the database and its copies can be written": (
        "pyrometer_alerting_store_writable", "pyrometer_alerting_backup_last_success_timestamp_seconds",
    ),
}  # fmt: skip
