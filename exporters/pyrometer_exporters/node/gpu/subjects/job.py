"""The jobs with processes on a GPU: one info series for each job to join with; no label is added to device series.

Source: nvmlDeviceGetComputeRunningProcesses_v3, whose answer has process numbers, and their cgroups. A sample line:
``pyrometer_gpu_job_info{gpu="0",uuid="GPU-4cf8db2d-...",job_id="4711",user="alice",job_name="",namespace="",pod="",
gpu_instance=""} 1``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from pyrometer_exporters.framework.metrics import Columns, Sample, columns_of
from pyrometer_exporters.node.gpu.families import GpuFamilies
from pyrometer_exporters.node.gpu.field_subject import FieldSubject
from pyrometer_exporters.node.gpu.jobs import Job
from pyrometer_exporters.node.gpu.nvml import FieldKey, optional
from pyrometer_exporters.node.gpu.pods import UNKNOWN
from pyrometer_exporters.node.gpu.subject import OpenGpu, SubjectSpec

# fmt: off
_ROWS = GpuFamilies()
INFO = _ROWS.gauge("pyrometer_gpu_job_info",
    "1 for each job with a process on the GPU: the id of a job of Slurm, PBS, LSF or Flux, or a Kubernetes pod's uid, "
    "from the processes' cgroups. job_name (the workload), namespace and pod are those of pods, where "
    "--collector.gpu.kubernetes-node is given; names of Slurm's jobs: pyrometer_slurm_job_info. gpu_instance is "
    "MIG's, empty without.", "job_id", "user", "job_name", "namespace", "pod", "gpu_instance")
PROCESSES = _ROWS.gauge("pyrometer_gpu_processes",
    "Processes that compute on the GPU, by what is known of them: attribution is job, none (of no job) or hidden (the "
    "number can't be seen from here: another PID namespace, or --path.procfs isn't the host's).", "attribution")
# fmt: on
# nvml.h: NVML_VALUE_NOT_AVAILABLE of an unsigned int.
NO_INSTANCE = 0xFFFFFFFF
ATTRIBUTIONS = ("job", "none", "hidden")


class _Job(FieldSubject):
    def open(self, gpu: OpenGpu) -> None:
        """See FieldSubject."""
        super().open(gpu)
        self._idle = columns_of(PROCESSES.sample(0, *gpu.labels, attribution) for attribution in ATTRIBUTIONS)

    def now(self, _fields: Mapping[FieldKey, float]) -> Iterable[Sample | Columns]:
        """Yield the present jobs."""
        gpu = self.gpu
        running = _running(gpu)
        if running is None:
            return
        if not running:  # as on every idle GPU
            yield self._idle
            return
        jobs: set[tuple[Job, str]] = set()
        attributions = Counter(_attribution(gpu, pid, instances, jobs) for pid, instances in running.items())
        for job, instance in sorted(jobs, key=lambda held: (held[0].job_id, held[0].user, held[1])):
            pod = gpu.context.pods.of(job.job_id) if gpu.context.pods is not None else UNKNOWN
            names = pod.workload, pod.namespace, pod.name
            yield INFO.sample(1, *gpu.labels, job.job_id, job.user, *names, instance)
        for attribution in ATTRIBUTIONS:
            yield PROCESSES.sample(attributions[attribution], *gpu.labels, attribution)


def _running(gpu: OpenGpu) -> dict[int, set[str]] | None:
    """Return the GPU instances of each process, empty text without MIG; None if the list is unavailable."""
    try:
        processes = optional(lambda: gpu.nvml.ask("nvmlDeviceGetComputeRunningProcesses_v3", gpu.handle))
    except (IndexError, MemoryError):  # the driver called the list longer than the room that it had asked for itself
        return None
    if processes is None:
        return None
    running: dict[int, set[str]] = {}
    for process in processes:
        number = getattr(process, "gpuInstanceId", NO_INSTANCE)
        running.setdefault(int(process.pid), set()).add("" if number == NO_INSTANCE else str(number))
    return running


def _attribution(gpu: OpenGpu, pid: int, instances: set[str], jobs: set[tuple[Job, str]]) -> str:
    job = gpu.context.jobs.of(pid)
    if job is not None:
        jobs.update((job, instance) for instance in instances)
        return "job"
    return "none" if gpu.context.jobs.visible(pid) else "hidden"


SUBJECT = SubjectSpec("job", tuple(_ROWS), _Job)
