"""Runbooks are pages of the service: every link of a message and of a rule leads to one."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from pyrometer_alerting.app import main, settings
from pyrometer_alerting.channel import runbooks
from pyrometer_alerting.model.links import runbook_url

RULES = Path(__file__).parents[3] / "alert_rules"


@cache
def page(path: str) -> str:
    response = runbooks.pages()[path]()
    assert response.status == 200
    return response.body.decode()


def base(*flags: str) -> str:
    return main.style(settings.load(["--web.listen-address=127.0.0.1:9937", *flags], {})).runbook_url


@pytest.mark.parametrize("path", sorted(RULES.glob("*.rules.yaml")), ids=lambda path: path.name)
def test_every_runbook_of_a_rule_is_a_page_with_its_anchor(path: Path) -> None:
    ours = base()
    for runbook in re.findall(r"runbook: (\S+)", path.read_text(encoding="utf-8")):
        address, _, anchor = runbook_url(runbook, ours).removeprefix("http://127.0.0.1:9937").partition("#")
        assert page(address).count(f'id="{anchor}"') == 1, runbook


def test_the_list_names_every_runbook_once() -> None:
    documents = {address: page(address) for address in runbooks.pages() if "/docs/" in address}
    listed = re.findall(r'href="(/runbooks/docs/[^"#]+)#([^"]+)">(\w+)<', page("/runbooks"))
    rules = "".join(path.read_text(encoding="utf-8") for path in RULES.glob("*.rules.yaml"))
    own = {"AlertPathDead", "AlertsMissed", "StateLost", "DeliveryOversized", "WatchdogRare"}
    alerts = own | set(re.findall(r"alert: (\w+)", rules))
    assert sorted(name for *_, name in listed) == sorted(alerts)
    assert all(documents[address].count(f'id="{anchor}"') == 1 for address, anchor, _ in listed)


def test_an_alert_has_a_page_at_its_own_name() -> None:
    own = page("/runbooks/GpuLost")
    assert own.count("<article") == 1
    assert 'id="gpulost"' in own


def test_steps_are_a_list_and_not_a_paragraph() -> None:
    assert "<ol>\n<li>Is it one GPU" in page("/runbooks/docs/alerts.md")


def test_a_page_of_the_manual_that_is_not_served_is_no_link() -> None:
    assert runbooks.to_html("[Sit](situations.md), [here](#gpulost), [al](alerts.md#a), [w](https://e.org)\n") == (
        '<p>Sit, <a href="#gpulost">here</a>, <a href="alerts.md#a">al</a>, <a href="https://e.org">w</a></p>\n'
    )
    assert 'href="situations.md"' not in page("/runbooks/docs/alerts.md")


def test_markup_in_a_runbook_is_shown_and_not_run() -> None:
    assert "<script>" not in runbooks.to_html("a <script>alert(1)</script>\n")


@pytest.mark.parametrize(("flags", "expected"), [
    ([], "http://127.0.0.1:9937/runbooks"),
    (["--web.listen-address=[::1]:80"], "http://[::1]:80/runbooks"),
    (["--web.external-url=https://pyrometer.example/gpu/"], "https://pyrometer.example/gpu/runbooks"),
    (["--runbook.url=https://wiki.example", "--web.external-url=https://p.example"], "https://wiki.example"),
])  # fmt: skip
def test_messages_link_to_the_service_unless_a_site_has_its_own(flags: list[str], expected: str) -> None:
    assert base(*flags) == expected


def test_a_service_that_listens_everywhere_goes_by_its_hosts_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "mon-1")
    chosen = settings.load(["--web.listen-address=:9937"], {})
    assert main.style(chosen, encrypted=True).runbook_url == "https://mon-1:9937/runbooks"


def test_an_external_url_that_is_no_web_address_is_refused() -> None:
    with pytest.raises(settings.UsageError, match=r"--web\.external-url=pyrometer: expected an address"):
        settings.load(["--web.external-url=pyrometer"], {})
