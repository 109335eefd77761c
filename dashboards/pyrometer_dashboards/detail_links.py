"""Links that lead to the boards of one GPU, one job and one rack, and columns that lead to several places."""

from __future__ import annotations

from pyrometer_dashboards.common import GPU_DETAIL, JOB, NODES_AND_SPARES, RACKS, TRAINING_RUN, link
from pyrometer_dashboards.model import Json

GPU_BOARD_OF_ROW = (
    "All of ${__data.fields.node} GPU ${__data.fields.gpu}",
    link(GPU_DETAIL, node="${__data.fields.node}", index="${__data.fields.gpu}"),
)
PARTS_OF_ROW = ("Parts of ${__data.fields.node}", link(NODES_AND_SPARES, node="${__data.fields.node}"))
JOB_OF_ROW = ("Open job ${__data.fields.job}", link(JOB, job="${__data.fields.job}"))
JOB_OF_SERIES = ("Open job ${__field.labels.job_id}", link(JOB, job="${__field.labels.job_id}"))
RACK_OF_ROW = ("Open rack ${__data.fields.rack}", link(RACKS, rack="${__data.fields.rack}"))
RUN_BOARD = ("Open run ${__data.fields.run}", link(TRAINING_RUN, run="${__data.fields.run}"))


def leading_to(*links: tuple[str, str], **settings: object) -> Json:
    """Return the settings of a column whose cells lead elsewhere than the other cells of their row."""
    return {"links": [{"title": title, "url": url} for title, url in links], **settings}
