"""Links that lead to the boards of one GPU, one job and one rack, and columns that lead to several places."""

from __future__ import annotations

from collections.abc import Mapping

from pyrometer_dashboards.common import (
    COLLECTIVES,
    COMPARE,
    GPU_DETAIL,
    HOSTS,
    JOB,
    NODE_OF_ROW,
    NODES_AND_SPARES,
    RACKS,
    TRAINING_RUN,
    link,
)
from pyrometer_dashboards.model import Json

GPU_BOARD_OF_ROW = (
    "All of ${__data.fields.node} GPU ${__data.fields.gpu}",
    link(GPU_DETAIL, node="${__data.fields.node}", index="${__data.fields.gpu}"),
)
PARTS_OF_ROW = ("Parts of ${__data.fields.node}", link(NODES_AND_SPARES, node="${__data.fields.node}"))
JOB_OF_ROW = ("Open job ${__data.fields.job}", link(JOB, job="${__data.fields.job}"))
RACK_OF_ROW = ("Open rack ${__data.fields.rack}", link(RACKS, rack="${__data.fields.rack}"))
COLLECTIVES_OF_ROW = ("Collectives of ${__data.fields.run}", link(COLLECTIVES, run="${__data.fields.run}"))
SPARES = ("Open nodes and spares", link(NODES_AND_SPARES))
COMPARE_RUN = ("Compare it with another run", link(COMPARE, run="$run"))
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
    found = _BOARDS.get(label)
    return leading_to((f"Open {found[1]} {cell}", link(found[0], **{found[1]: cell}))) if found else {}


# Labels, the boards that show what they name, and the variable of it there.
_BOARDS = {
    "run": (TRAINING_RUN, "run"),
    "job_id": (JOB, "job"),
    "rack": (RACKS, "rack"),
    "switch": (RACKS, "switch"),
}
