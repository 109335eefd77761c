"""Links to logs: where a data source is named, of the node to blame, at the minute of the trouble."""

from __future__ import annotations

import html
import json
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

from alerting_fakes import START, alert, training_incident

from pyrometer_alerting.channel.blocks import Style
from pyrometer_alerting.channel.evidence import build_evidence
from pyrometer_alerting.model.incident import Cause, Diagnosis, Incident
from pyrometer_alerting.model.links import AFTER_SECONDS, LOGS_BEFORE_SECONDS, board_links, log_links

GRAFANA = "https://grafana.example/"


def incident_of(node: str) -> Incident:
    member = alert(labels={"node": node})
    return training_incident(alertname="GpuLost", run="", members=(member,))


def pane(url: str) -> Any:
    query = parse_qs(urlsplit(html.unescape(url)).query)
    return json.loads(query["panes"][0])["logs"]


def test_the_kernels_and_the_trainers_log_of_the_node_are_a_click_away() -> None:
    (kernel, kernel_url), (trainer, trainer_url) = log_links(incident_of("gpu-042"), GRAFANA, "loki")
    assert (kernel, trainer) == ("Kernel log", "Trainer log")
    assert kernel_url.startswith("https://grafana.example/explore?")
    (query,) = pane(kernel_url)["queries"]
    assert query["expr"] == '{cluster="c1", node="gpu-042", source="kernel"}'
    assert pane(trainer_url)["queries"][0]["expr"].endswith('source="trainer"}')
    begins, ends = (int(pane(kernel_url)["range"][name]) / 1000 for name in ("from", "to"))
    assert (START - begins, ends - START) == (LOGS_BEFORE_SECONDS, AFTER_SECONDS)


def test_a_run_has_the_logs_of_the_node_to_blame_at_the_onset() -> None:
    incident = training_incident()
    cause = Cause("gpu-042 GPU 3", "heat", (), (), START, 120.0, {"node": "gpu-042", "gpu": "3"})
    incident = replace(incident, diagnosis=Diagnosis(START, (cause,), onset=START - 60))
    (_, url), _ = log_links(incident, GRAFANA, "loki")
    assert '"gpu-042"' in pane(url)["queries"][0]["expr"]
    assert int(pane(url)["range"]["from"]) / 1000 <= START - 60 - LOGS_BEFORE_SECONDS


def test_there_is_none_without_a_data_source_a_grafana_or_a_node() -> None:
    incident = incident_of("gpu-042")
    assert log_links(incident, GRAFANA, "") == log_links(incident, "", "loki") == []
    assert log_links(incident_of(""), GRAFANA, "loki") == []
    assert "explore" not in json.dumps(build_evidence(incident, Style(grafana_url=GRAFANA)).blocks)
    assert "explore" in json.dumps(build_evidence(incident, Style(grafana_url=GRAFANA, logs="loki")).blocks)


def test_no_name_ends_the_query_or_the_link() -> None:
    (_, url), _ = log_links(incident_of('a"} |= "<!here>'), GRAFANA, "loki")
    assert not set('<>|"') & set(url)
    assert pane(url)["queries"][0]["expr"].count('\\"') == 2


def test_the_board_of_a_run_is_that_of_its_job() -> None:
    of_job = training_incident(members=(alert(labels={"run": training_incident().run, "job_id": "47 11"}),))
    (_, url), *_ = board_links(of_job, GRAFANA)
    assert f"var-run={of_job.run}&amp;var-job_id=47%2011&amp;" in url
    (_, url), *_ = board_links(training_incident(), GRAFANA)
    assert "job_id" not in url
