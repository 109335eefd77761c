"""The families of ``/metrics``: counters of each rank, where it is, and what its run is configured as."""

from __future__ import annotations

from pyrometer_exporters.framework.metrics import Families

# fmt: off
FAMILIES = Families()
_RUN = ("run", "job_id", "attempt")
_RANK = (*_RUN, "rank")
RINGS_LEFT_OUT = FAMILIES.gauge("pyrometer_train_rings_left_out",
    "Rings that are not followed, by the numeric id of the user: budget = more than the user's fair share. "
    "Absent at 0.", "user", "reason")
NAME_CLASH = FAMILIES.gauge("pyrometer_train_run_name_clash_info",
    "1 where two processes of one name (asked) and job have one rank on the node: the later one is served as run.",
    *_RUN, "asked")
BATCHES_LEFT_OUT = FAMILIES.counter("pyrometer_train_batches_left_out_total",
    "Batches that are not served: future = they claim to end later than now, budget = beyond the limit of all runs.",
    "reason")
CONSUMERS_LEFT_OUT = FAMILIES.counter("pyrometer_train_consumers_left_out_total",
    "Requests for /batches beyond the limit of consumers: they got the newest batches, and no cursor.")
STEPS = FAMILIES.counter("pyrometer_train_steps_total", "Steps that the rank has finished.", *_RANK)
SKIPPED_STEPS = FAMILIES.counter("pyrometer_train_skipped_steps_total",
    "Steps without a useful update: skipped = the job says that the optimizer left them out (overflow of the loss "
    "scale), nan = their loss is not finite, counted where losses are served. Absent at 0.", *_RANK, "reason")
STEP_SECONDS = FAMILIES.counter("pyrometer_train_step_seconds_total",
    "Seconds that the rank spent in finished steps.", *_RANK)
TOKENS = FAMILIES.counter("pyrometer_train_tokens_total",
    "Tokens trained on: the rank's share, so that the sum is the run's.", *_RANK)
FLOPS = FAMILIES.counter("pyrometer_train_flops_total",
    "Model FLOPs done: the rank's share, so that rate()/peak is its exact average MFU over any window.", *_RANK)
PART_SECONDS = FAMILIES.counter("pyrometer_train_step_part_seconds_total",
    "Seconds that the rank spent in each part of its steps; parts that it never used are absent.", *_RANK, "part")
LAST_STEP = FAMILIES.gauge("pyrometer_train_last_step_timestamp_seconds",
    "When the rank finished its latest step; absent before the first and after a run has closed.", *_RANK)
LAST_STEP_NUMBER = FAMILIES.gauge("pyrometer_train_last_step",
    "Number of the latest step that the rank finished; the others wait for the rank with the lowest.", *_RANK)
CURRENT_PART = FAMILIES.gauge("pyrometer_train_current_part_seconds",
    "How long the rank has been in the part that it is in now; part is step inside a step but in no named part, "
    "between outside, between_ticks where that can't be told. Absent once its process is gone.", *_RANK, "part")
LONGEST_TICK = FAMILIES.gauge("pyrometer_train_longest_tick_seconds",
    "Longest time from one tick to the next, except for the first ten and for named pauses: an unnamed pause may last"
    " that long again. Only of loops that tick.", *_RANK)
RANK_UP = FAMILIES.gauge("pyrometer_train_rank_up",
    "1 while the rank's process is alive, 0 once it is gone without having closed its run; absent after a clean end.",
    *_RANK)
RANK_END = FAMILIES.gauge("pyrometer_train_rank_end_timestamp_seconds",
    "When the process was found gone without having closed its run.", *_RANK)
RANK_EXIT = FAMILIES.gauge("pyrometer_train_rank_exit_info",
    "1 once it is gone with its run not closed: how its process ended, an exception, exit status or signal; part is "
    "where it was then, as an exception in wait is what the end of another causes.", *_RANK, "exit", "part")
RANK_START = FAMILIES.gauge("pyrometer_train_rank_start_timestamp_seconds",
    "When the rank began to report: between this and its first step it was starting.", *_RANK)
GC_PAUSES = FAMILIES.counter("pyrometer_train_gc_pauses_total",
    "Pauses of Python's garbage collector of 5 ms or more.", *_RANK)
GC_PAUSE_SECONDS = FAMILIES.counter("pyrometer_train_gc_pause_seconds_total",
    "Seconds in pauses of the garbage collector of 5 ms or more; shorter ones hide behind the GPU's queue.", *_RANK)
LAST_GC_STEP = FAMILIES.gauge("pyrometer_train_last_gc_step",
    "Number of the step that the latest pause of 5 ms or more fell into; equal on all ranks that collect together.",
    *_RANK)
RANK_INFO = FAMILIES.gauge("pyrometer_train_rank_info",
    "1; joins a rank to its GPU, pipeline stage and replica.", *_RANK, "local_rank", "gpu", "uuid", "stage", "replica")
RUN_TEXTS = (
    "model", "convention", "dtype", "gpu_model", "global_batch_size", "micro_batch_size", "sequence_length",
    "recompute",
)
RUN_INFO = FAMILIES.gauge("pyrometer_train_run_info",
    "1; what must be equal for MFU numbers to be comparable. source is client, or log:<format>; user owns the rank's "
    "ring.", *_RUN, "world_size", *RUN_TEXTS, "source", "user")
TIMING_INFO = FAMILIES.gauge("pyrometer_train_timing_info",
    "1; whose time the run's batches have: device = the GPU's, by CUDA events; host = the host's, where none runs "
    "behind it; launch = the host's while a GPU or TPU runs behind it: batches are means of the steps from one wait "
    "for it to the next.", *_RUN, "timing")
LINK_INFO = FAMILIES.gauge("pyrometer_train_run_link_info",
    "1; the run's page elsewhere, in W&B (wandb) or MLflow (mlflow) for instance: a web address without its query.",
    *_RUN, "name", "url")
PEAK_FLOPS = FAMILIES.gauge("pyrometer_train_peak_flops_per_second",
    "Peak dense FLOP/s of one GPU that MFU is counted against; absent, and MFU with it, where the GPU is unknown.",
    *_RUN)
PEAK_UNKNOWN = FAMILIES.gauge("pyrometer_train_peak_flops_unknown",
    "1 where the run's FLOPs are counted but no peak is known for this GPU and dtype: it has no MFU.",
    *_RUN, "gpu_model", "dtype")
GPUS_UNKNOWN = FAMILIES.gauge("pyrometer_train_gpus_unknown",
    "1 where the run's FLOPs are counted but its log doesn't show how many GPUs share them: it has no MFU.",
    *_RUN)
MFU_UNKNOWN = FAMILIES.gauge("pyrometer_train_mfu_unknown_info",
    "1 for each input that the run's MFU lacks; reason is flops (per token), tokens (of a step), gpus (their number),"
    " peak (of this GPU and dtype), or implausible: batches came out above 0.9 of the peak and are left out.",
    *_RUN, "reason")
MFU_SUSPECT = FAMILIES.gauge("pyrometer_train_mfu_suspect",
    "1 while the run's last ten batches all have an MFU above 0.75, which is more than GPUs reach; absent otherwise.",
    *_RUN)
EXPECTED_MFU = FAMILIES.gauge("pyrometer_train_expected_mfu_ratio",
    "MFU, 0-1, that the job expects of its configuration; absent if it gives none.", *_RUN)
