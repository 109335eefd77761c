"""Variables, links and annotations that the boards share; links keep variables and time."""

from __future__ import annotations

from collections.abc import Mapping

from pyrometer_dashboards import palette
from pyrometer_dashboards.model import Annotation, Json, Variable

OVERVIEW = "pyrometer-overview"
TRAINING_RUN = "pyrometer-training-run"
THROTTLING = "pyrometer-throttling"
FABRIC = "pyrometer-fabric"
NODE = "pyrometer-node"
GPU_MATRIX = "pyrometer-gpu-matrix"
RELIABILITY = "pyrometer-reliability"
ALERTS = "pyrometer-alerts"
STACK_HEALTH = "pyrometer-stack-health"
NODES_AND_SPARES = "pyrometer-nodes"
COLLECTIVES = "pyrometer-collectives"
HOSTS = "pyrometer-hosts"
GPU_DETAIL = "pyrometer-gpu"
JOB = "pyrometer-job"
RACKS = "pyrometer-racks"
COMPARE = "pyrometer-compare-runs"
CLUSTERS_BOARD = "pyrometer-clusters"

CLUSTER = 'cluster="$cluster"'
EVERY_CLUSTER = 'cluster=~"$clusters"'  # of the one board of several
NODE_IS = 'cluster="$cluster", node="$node"'
# A run is its name and its job. The jobs that continue each other are chosen together; series of exporters until 0.2.0
# have no job, and belong to any run of their name.
RUN_IS = 'cluster="$cluster", run="$run", job_id=~"$jobs|"'
RUN_NAME = "{{run}} {{job_id}}"

_KEPT = "${datasource:queryparam}&${cluster:queryparam}"
_TIME = "${__url_time_range}"


def link(board: str, **variables: str) -> str:
    """Return the address of a board with this board's data source, cluster and time, and further variables."""
    more = "".join(f"&var-{name}={value}" for name, value in variables.items())
    return f"/d/{board}?{_KEPT}{more}&{_TIME}"


def recently(name: str, matchers: str) -> str:
    """Return a recorded MFU, held for 2 minutes: it has no samples while batches are tagged (a checkpoint)."""
    return f"last_over_time({name}{{{matchers}}}[2m])"


def link_from_clusters(board: str, cluster: str) -> str:
    """Return the address of a board from the one that has no cluster of its own: with that of a row or a series."""
    return f"/d/{board}?${{datasource:queryparam}}&var-cluster={cluster}&{_TIME}"


_OF_ROW, _OF_SERIES = "${__data.fields.cluster}", "${__field.labels.cluster}"
OVERVIEW_OF_ROW = (f"Open the overview of {_OF_ROW}", link_from_clusters(OVERVIEW, _OF_ROW))
OVERVIEW_OF_SERIES = (f"Open the overview of {_OF_SERIES}", link_from_clusters(OVERVIEW, _OF_SERIES))

NODE_OF_ROW = ("Open ${__data.fields.node}", link(NODE, node="${__data.fields.node}"))
GPU_OF_ROW = (
    "Open ${__data.fields.node} GPU ${__data.fields.gpu}",
    link(NODE, node="${__data.fields.node}", gpu="${__data.fields.gpu}"),
)
NODE_OF_SERIES = ("Open ${__field.labels.node}", link(NODE, node="${__field.labels.node}"))
_RUN_AND_JOB_OF_ROW = {"run": "${__data.fields.run}", "job_id": "${__data.fields.job}"}
RUN_OF_ROW = ("Open run ${__data.fields.run}", link(TRAINING_RUN, **_RUN_AND_JOB_OF_ROW))
# The page of the alerting service has the messages and the runbooks; ``$alerting`` is its address.
RUNBOOKS = "${alerting:raw}/runbooks"
RUNBOOK_OF_ROW = ("Open the runbook", f"{RUNBOOKS}/${{__data.fields.alert}}")
MESSAGE_OF_ROW = ("Open the message", "${__data.fields.link:raw}")
RUN_OF_SERIES = (
    "Open run ${__field.labels.run}",
    link(TRAINING_RUN, run="${__field.labels.run}", job_id="${__field.labels.job_id}"),
)

# Families of alerts, and the board that shows each where the alert names neither a run nor a node; the last one counts.
_BOARDS = (
    (".*", STACK_HEALTH),
    ("Gpu.*", GPU_MATRIX),
    ("Gpu(Throttled|PowerCap|Clock|Limit|Thermal).*", THROTTLING),
    ("(NodeExporter)?Nic.*|Fabric.*", FABRIC),
    ("(Train|Nccl).*", OVERVIEW),
)
_OF_RUNS = "(?:Train|Nccl).*"


def with_targets(alerts: str, name: str = "alertname") -> str:
    """Return alerts with labels for the links of their rows, which thus never lead to a part that a row has not.

    Each is a board and its variables: ``to`` for the alert in the label ``name``, ``to_node`` and ``to_run`` for its
    node and run, or the same as ``to``; ``book`` is the text of the link to the runbook.
    """
    run, node = f"{TRAINING_RUN}?var-run=$1", f"{NODE}?var-node=$1"
    # The run and, where it has one, its job: what follows var-run= in an address.
    labelled = f'label_replace({alerts}, "of", "&var-job_id=$1", "job_id", "(.+)")'
    labelled = f'label_join({labelled}, "of", "", "run", "of")'
    for names, board in _BOARDS:
        labelled = f'label_replace({labelled}, "to", "{board}?", "{name}", "{names}")'
    labelled = f'label_replace({labelled}, "to", "{node}", "node", "(.+)")'
    # For an alert of a run, the run says more than the node where it was read.
    of_run = f'label_join({labelled}, "at", "/", "{name}", "of")'
    labelled = f'label_replace({of_run}, "to", "{run}", "at", "{_OF_RUNS}/([^&].*)")'
    for to, there, label in (("to_node", node, "node"), ("to_run", run, "of")):
        same = f'label_replace({labelled}, "{to}", "$1", "to", "(.+)")'
        labelled = f'label_replace({same}, "{to}", "{there}", "{label}", "([^&].*)")'
    return f'label_replace({labelled}, "book", "runbook", "", "")'


def _target(label: str, title: str, kept: str = _KEPT) -> tuple[str, str]:
    return title, f"/d/${{__data.fields.{label}:raw}}&{kept}&{_TIME}"


ALERT_OF_ROW = _target("to", "Open the board that shows it")
NODE_OF_ALERT = _target("to_node", "Open the node")
RUN_OF_ALERT = _target("to_run", "Open the run")
# The same from the board of clusters: each row has its own.
_KEPT_OF_ROW = f"${{datasource:queryparam}}&var-cluster={_OF_ROW}"
ALERT_THERE = _target("to", ALERT_OF_ROW[0], _KEPT_OF_ROW)
NODE_THERE = _target("to_node", NODE_OF_ALERT[0], _KEPT_OF_ROW)
RUN_THERE = _target("to_run", RUN_OF_ALERT[0], _KEPT_OF_ROW)
# Columns of these labels, for a table's own.
TARGETS = {"to": "to", "to_node": "to_node", "to_run": "to_run"}

CLUSTERS = Variable("cluster", "Cluster", 'label_values(up{job="node"}, cluster)')
ALERTING = Variable("alerting", "Alerting", 'label_values(pyrometer_alerting_page_info{url!=""}, url)', hidden=True)
RUNS = Variable("run", "Run", 'label_values(run:pyrometer_train_ranks:count{cluster="$cluster"}, run)')


def jobs_of_run(run: str, job: str, jobs: str, label: str) -> tuple[Variable, Variable]:
    """Return the choice of a run's job, the newest of the time range first, and the jobs that it continues (hidden).

    Jobs of one user and name continue each other where none ran beside another (``lineage``, train.rules.yaml).

    Args:
        run: the variable of the run's name.
        job: name of the choice.
        jobs: name of the hidden variable, which queries match.
        label: of the choice.
    """
    begun = "max_over_time(run:pyrometer_train_rank_start:lineage{%s}[$__range])"
    named = f'{CLUSTER}, run="${run}"'
    newest = f"max by (job_id, user) ({begun % named} * on (run, job_id) group_left (user) {_OWNER % named})"
    chosen = begun % f'{named}, job_id="${job}"'
    continued = f"group by (job_id) ({begun % named} and on (run, lineage) {chosen})"
    return (
        Variable(
            job,
            label,
            f'query_result(sort_desc(label_join({newest}, "text", ", ", "user", "job_id")))',
            regex='/job_id="(?<value>[^"]+)".*text="(?<text>[^"]+)"/',
            ordered=True,
        ),
        Variable(
            jobs,
            query=f'query_result({continued} or label_replace(vector(1), "job_id", "${job}", "", ""))',
            regex='/job_id="([^"]+)"/',
            every=True,
            hidden=True,
        ),
    )


_OWNER = "topk by (run, job_id) (1, 0 * last_over_time(run:pyrometer_train_run_info:user{%s}[$__range]) + 1)"
RUN_CHOICE = (RUNS, *jobs_of_run("run", "job_id", "jobs", "Job"))
NODES = Variable("node", "Node", 'label_values(up{job="node", cluster="$cluster"}, node)')
GPUS = Variable(
    "gpu",
    "GPU",
    'label_values(pyrometer_gpu_up{cluster="$cluster", node="$node"}, gpu)',
    all_value=".+",
    numeric=True,
)


def fired(which: str) -> str:
    """Return a query for the start times, in ms, of firing alerts with these labels, once for each episode.

    ALERTS_FOR_STATE has pending alerts, too, which are left out. An alert that fires again within 10 minutes counts as
    the same episode: a flapping link would otherwise draw a fence.
    """
    firing = f'ALERTS{{alertstate="firing", {which}}}'
    return (
        f"last_over_time(ALERTS_FOR_STATE{{{which}}}[$__interval]) * 1000 "
        f"and ignoring (alertstate) last_over_time({firing}[$__interval]) "
        f"unless ignoring (alertstate) last_over_time({firing}[10m] offset $__interval)"
    )


CRITICAL = Annotation(
    "Critical",
    fired(f'severity="critical", {CLUSTER}'),
    "{{alertname}}",
    "{{node}} {{gpu}} {{device}} {{run}}",
    palette.WORST,
    at_value=True,
)
RESTARTS = Annotation(
    "Restarts",
    'count by (run, job_id, attempt) (run:pyrometer_train_run_info:config{cluster="$cluster"}) unless on (run, job_id, '
    'attempt) count by (run, job_id, attempt) (run:pyrometer_train_run_info:config{cluster="$cluster"} '
    # Without any data two minutes before, every run would look new.
    'offset 2m) and on () count(run:pyrometer_train_run_info:config{cluster="$cluster"} offset 2m)',
    "{{run}} restarted",
    "job {{job_id}}, attempt {{attempt}}",
    palette.BAND,
)
DEPLOYS = Annotation(
    "Deploys",
    f"cluster:pyrometer_exporter_build_info:count{{{CLUSTER}}} "
    f"unless on (exporter, version) cluster:pyrometer_exporter_build_info:count{{{CLUSTER}}} offset 2m "
    f"and on () count(cluster:pyrometer_exporter_build_info:count{{{CLUSTER}}} offset 2m)",
    "{{exporter}} exporter {{version}}",
    "a version that wasn't there two minutes before",
    "#8f3bb8",
)
CHECKPOINTS = Annotation(
    "Saves",
    'max by (run, job_id) (count_over_time(pyrometer_train_batch_tag{cluster="$cluster", tag="checkpoint"}[1m])) > 0',
    "checkpoint of {{run}} {{job_id}}",
    "",
    "#705da0",
    enabled=False,
)
FIRING = Annotation(
    "Firing",
    'max by (alertname, node) (ALERTS{alertstate="firing", severity=~"critical|warning", cluster="$cluster"})',
    "{{alertname}}",
    "{{node}}",
    palette.BAD,
    enabled=False,
)
# Only three kinds of annotation at once: a fence over every panel hides what is behind it.
MARKS = (CRITICAL, RESTARTS, DEPLOYS)


GPU_BOARD_OF_ROW = (
    "All of ${__data.fields.node} GPU ${__data.fields.gpu}",
    link(GPU_DETAIL, node="${__data.fields.node}", index="${__data.fields.gpu}"),
)
PARTS_OF_ROW = ("Parts of ${__data.fields.node}", link(NODES_AND_SPARES, node="${__data.fields.node}"))
JOB_OF_ROW = ("Open job ${__data.fields.job}", link(JOB, job="${__data.fields.job}"))
RACK_OF_ROW = ("Open rack ${__data.fields.rack}", link(RACKS, rack="${__data.fields.rack}"))
COLLECTIVES_OF_ROW = ("Collectives of ${__data.fields.run}", link(COLLECTIVES, **_RUN_AND_JOB_OF_ROW))
SPARES = ("Open nodes and spares", link(NODES_AND_SPARES))
COMPARE_RUN = ("Compare it with another run", link(COMPARE, run="$run", job_id="$job_id"))
HOST = ("Open storage and hosts", link(HOSTS, node="$node"))
# A node that is out of service: its own board, and that of why.
NODE_OUT_OF_SERVICE = (NODE_OF_ROW, PARTS_OF_ROW)


def leading_to(*links: tuple[str, str], **settings: object) -> Json:
    """Return the settings of a column whose cells lead elsewhere than the other cells of their row."""
    return {"links": [{"title": title, "url": url} for title, url in links], **settings}


def gpu_of_this_node(heading: str) -> tuple[str, str]:
    """Return the link of a row that names a GPU of the board's own node under a heading."""
    cell = f"${{__data.fields.{heading}}}"
    return f"All of GPU {cell}", link(GPU_DETAIL, node="$node", index=cell)


def of_column(label: str, columns: Mapping[str, str]) -> Json:
    """Return the links of a column of labels that have a board of their own; the others lead where their row does.

    ``columns`` maps the labels of a row to the headings of the table. A GPU needs the node of its row.
    """
    cell = f"${{__data.fields.{columns[label]}}}"
    if label == "gpu" and "node" in columns:
        node = f"${{__data.fields.{columns['node']}}}"
        return leading_to((f"All of {node} GPU {cell}", link(GPU_DETAIL, node=node, index=cell)))
    if label == "run" and "job_id" in columns:
        return leading_to(RUN_OF_ROW)
    target = _BOARDS_OF_LABELS.get(label)
    return leading_to((f"Open {target[1]} {cell}", link(target[0], **{target[1]: cell}))) if target else {}


# Labels, the boards that show what they name, and the variable of it there.
_BOARDS_OF_LABELS = {
    "run": (TRAINING_RUN, "run"),
    "job_id": (JOB, "job"),
    "rack": (RACKS, "rack"),
    "switch": (RACKS, "switch"),
}
