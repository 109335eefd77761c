"""Who this rank is, from the environment variables that its launcher sets."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# In order of trust: torchrun (and Kubernetes' training operators), Slurm, Open MPI, PMI (MPICH, Intel MPI), and the
# pods of an indexed Job in Kubernetes.
_RANK = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "JOB_COMPLETION_INDEX")
_LOCAL_RANK = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
_WORLD_SIZE = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
# Ids of jobs, each unique in its cluster, with the number of the task where all tasks of an array share it. The first
# is that of a heterogeneous job, whose components have ids of their own (sbatch(1)).
_SCHEDULERS = (
    ("SLURM_JOB_ID_HET_GROUP_0", ""),
    ("SLURM_JOB_ID", ""),
    ("PBS_JOBID", ""),
    ("LSB_JOBID", "LSB_JOBINDEX"),
    ("FLUX_JOB_ID", ""),
    ("COBALT_JOBID", ""),
)
# torchrun sets "none" where it has no --rdzv-id. Open MPI's is the same for all processes of one mpirun.
_LAUNCHERS = ("TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE")
_NONE = frozenset(("", "none"))
# Where all ranks meet: of PyTorch, and of JAX.
_MEETING = (("MASTER_ADDR", "MASTER_PORT"), ("JAX_COORDINATOR_ADDRESS", "JAX_COORDINATOR_PORT"))
_LOOPBACK = frozenset(("localhost", "::1", "0.0.0.0", "::", "localhost.localdomain"))  # noqa: S104  compared only
_NAMESPACE = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
# Slurm's names of jobs that were given none: salloc, sbatch --wrap, sbatch from standard input, srun of a program.
_UNTOLD = frozenset(("interactive", "wrap", "sbatch", "bash", "sh", "zsh", "python", "python3", "torchrun"))
# Kubeflow's names of the replicas of a PyTorchJob or an MPIJob, before their number.
_REPLICAS = frozenset(("master", "worker", "launcher", "chief"))
# The random part of a pod's name: k8s.io/apimachinery pkg/util/rand, alphanums; five letters in names.go.
_POD_LETTERS, _POD_LENGTH = frozenset("bcdfghjklmnpqrstvwxz2456789"), 5
# In all pods of a LeaderWorkerSet's group, "llama-0.llama.default": the leader's pod is llama-0, a worker's llama-0-1
# (kubernetes-sigs/lws, pkg/utils/pod/pod_utils.go, AddLWSVariables).
_LEADER = "LWS_LEADER_ADDRESS"
# torchrun's restarts within one start of the job; nobody allows a thousand.
_RESTARTS_PER_REQUEUE = 1000


def rank(environ: Mapping[str, str]) -> int:
    """Return the global rank, 0 where no launcher sets it."""
    return _first_integer(environ, _RANK, 0)


def local_rank(environ: Mapping[str, str]) -> int:
    """Return the rank within the node, 0 where no launcher sets it."""
    return _first_integer(environ, _LOCAL_RANK, 0)


def world_size(environ: Mapping[str, str]) -> int:
    """Return the number of ranks, 1 where no launcher sets it."""
    return max(1, _first_integer(environ, _WORLD_SIZE, 1))


def run_name(environ: Mapping[str, str], arguments: Sequence[str]) -> str:
    """Return the run's name, the same on all ranks and over restarts: of the job in Slurm or Kubernetes, or the script.

    Slurm names an interactive job, or one wrapped from the command line, after the shell; the script says more. The
    tasks of a job array share their name, so their number is added. Kubernetes has no variable for the job's name: it
    is the pod's host name without the index or the random part at its end. A number there that nothing explains is
    the pod's index where the run has several pods; a pod ``gpt-2`` that is alone keeps it.
    """
    if environ.get("PYROMETER_RUN"):
        return environ["PYROMETER_RUN"]
    script = _script(arguments)
    slurm = environ.get("SLURM_JOB_NAME", "")
    if slurm and (slurm not in _UNTOLD or not script):
        task = environ.get("SLURM_ARRAY_TASK_ID", "")
        return f"{slurm}-{task}" if task else slurm
    if environ.get("KUBERNETES_SERVICE_HOST"):
        job = environ.get("JOB_NAME") or _without_pod(environ.get("HOSTNAME", ""), environ)
        if job:
            return job
    return script or "unnamed"


def attempt(environ: Mapping[str, str]) -> int:
    """Return how often the run has been restarted: the same number on all ranks, and it never decreases.

    torchrun counts from 0 again when Slurm requeues the job, so the number is made of both counts: 2001 is the first
    restart after the second requeue. A new job that continues the run has the same attempt again, unless the job sets
    ``PYROMETER_ATTEMPT``.
    """
    requeues = _first_integer(environ, ("SLURM_RESTART_COUNT",), 0)
    restarts = _first_integer(environ, ("TORCHELASTIC_RESTART_COUNT",), 0)
    return _first_integer(environ, ("PYROMETER_ATTEMPT",), requeues * _RESTARTS_PER_REQUEUE + restarts)


def job_id(environ: Mapping[str, str], ranks: int = 1) -> str:
    """Return what all ranks of a job share and no other job has: with the run's name its identity.

    The scheduler's id of the job; else the launcher's with the user, as people copy ``--rdzv-id=100``; else the user
    and where the ranks meet. Not a rank's host or process, unless all ``ranks`` are on one host: a single one is, and
    so are those that meet at a loopback address.
    """
    if job := scheduled_job_id(environ):
        return job
    user = f"uid{os.getuid()}"
    launcher = next((value for name in _LAUNCHERS if (value := environ.get(name, "")) not in _NONE), "")
    if launcher:
        return f"{user}/{launcher}"
    for address_name, port_name in _MEETING:
        if address := environ.get(address_name, ""):
            host = os.uname().nodename if address in _LOOPBACK or address.startswith("127.") else address
            port = environ.get(port_name, "")
            return f"{user}@{host}:{port}" if port else f"{user}@{host}"
    return f"{user}@{os.uname().nodename}" if ranks == 1 else user


def scheduled_job_id(environ: Mapping[str, str]) -> str:
    """Return the id of the job in Slurm, PBS, LSF, Flux, Cobalt or Kubernetes; empty where none of them runs it."""
    for name, task_name in _SCHEDULERS:
        job = environ.get(name, "")
        if job not in _NONE:
            task = environ.get(task_name, "")
            return job if task in ("", "0") else f"{job}[{task}]"
    if environ.get("KUBERNETES_SERVICE_HOST"):
        job = _kubernetes_job(environ)
        return f"{_namespace()}/{job}" if job else ""
    return ""


def _kubernetes_job(environ: Mapping[str, str]) -> str:
    """Return the name of the job that all pods share; empty where a pod's name doesn't say it."""
    host = environ.get("HOSTNAME", "")
    job = environ.get("JOB_NAME") or _without_pod(host, environ)
    is_alone = world_size(environ) <= _first_integer(environ, ("LOCAL_WORLD_SIZE",), 1)
    return job if job != host or is_alone else ""


def _namespace() -> str:
    try:
        with open(_NAMESPACE, encoding="utf-8") as file:
            return file.read(64).strip() or "default"
    except (OSError, ValueError):
        return "default"


def gpu(environ: Mapping[str, str], local: int) -> tuple[str, str]:
    """Return index and UUID of the GPU of a local rank, each empty where unknown.

    ``CUDA_VISIBLE_DEVICES`` may hold indices (``4,5,6,7``) or UUIDs (``GPU-8f3a...``).
    """
    visible = [name.strip() for name in environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    if len(visible) == 1:  # as Slurm's --gpus-per-task and Ray do: each rank sees its own GPU only
        name = visible[0]
    else:
        name = visible[local] if local < len(visible) else "" if visible else str(local)
    return ("", name) if name.startswith(("GPU-", "MIG-")) else (name, "")


def clock_offset(path: str = "/proc/self/timens_offsets") -> int:
    """Return by how many ns CLOCK_MONOTONIC is ahead of the machine's: in a time namespace, time_namespaces(7)."""
    try:
        with open(path, encoding="ascii") as file:
            for line in file:
                name, seconds, nanoseconds = line.split()
                if name == "monotonic":
                    return int(seconds) * 1_000_000_000 + int(nanoseconds)
    except (OSError, ValueError):
        pass  # a kernel without time namespaces
    return 0


def _script(arguments: Sequence[str]) -> str:
    folder, _, file = (arguments[0] if arguments else "").replace("\\", "/").rpartition("/")
    name = file.removesuffix(".py")
    if name == "__main__":  # python -m package
        name = folder.rpartition("/")[2]
    return "" if name in ("-c", "-m", "-") else name


def _without_pod(host: str, environ: Mapping[str, str]) -> str:
    """Return the name of the job that a pod ``llama-8b-worker-3``, ``llama-8b-3`` or ``llama-8b-x7k2p`` belongs to."""
    leader = environ.get(_LEADER, "").partition(".")[0]
    if leader and host.startswith(leader):
        return leader
    name, _, last = host.rpartition("-")
    if not name:
        return host
    if last.isdecimal() and (environ.get("JOB_COMPLETION_INDEX") == last or name.rpartition("-")[2] in _REPLICAS):
        return name.rpartition("-")[0] if name.rpartition("-")[2] in _REPLICAS else name
    if last.isdecimal() and world_size(environ) > _first_integer(environ, ("LOCAL_WORLD_SIZE",), 1):
        return name
    return name if len(last) == _POD_LENGTH and set(last) <= _POD_LETTERS else host


def _first_integer(environ: Mapping[str, str], names: tuple[str, ...], default: int) -> int:
    for name in names:
        text = environ.get(name, "")
        if text.isdecimal():
            return int(text)
    return default
