"""`pyrometer-alerting check-slack`: what Slack would refuse later is said before, with the next step."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from pyrometer_alerting.app import main
from pyrometer_simulator.slack import FakeSlack
from pyrometer_simulator.slack_scopes import ALL, NEEDED

ROOT = Path(__file__).parents[3]
MANIFEST = ROOT / "alerting/pyrometer_alerting/channel/slack_app.yaml"
BOT = {"PYROMETER_SLACK_BOT_TOKEN": "xoxb-test"}
BOTH = {**BOT, "PYROMETER_SLACK_APP_TOKEN": "xapp-fake-token"}


def checked(
    slack: FakeSlack,
    capsys: pytest.CaptureFixture[str],
    *flags: str,
    channel: str = "#gpu-alerts",
    tokens: dict[str, str],
) -> tuple[int, str]:
    status = main.run(["check-slack", f"--slack.api-url={slack.url}", f"--slack.channel={channel}", *flags], tokens)
    captured = capsys.readouterr()
    return status, captured.out + captured.err


def test_a_good_configuration_is_said_to_be_good_and_nothing_is_posted(
    slack: FakeSlack, capsys: pytest.CaptureFixture[str]
) -> None:
    status, said = checked(slack, capsys, tokens=BOTH)
    assert status == 0
    assert "missing" not in said
    assert "ok       bot token: pyrometer of workspace Fake" in said
    assert "ok       channel #gpu-alerts: the bot is a member" in said
    assert "ok       app token: Socket Mode opens" in said
    assert not [call for call in slack.calls if call.method.startswith("chat.")]


def test_a_test_message_is_posted_found_edited_and_deleted(
    slack: FakeSlack, capsys: pytest.CaptureFixture[str]
) -> None:
    status, said = checked(slack, capsys, "--post", tokens=BOT)
    assert (status, said.splitlines()[-1]) == (0, "ok       test message: posted, found, edited and deleted")
    assert slack.messages("gpu-alerts") == []


@pytest.mark.parametrize("scope", sorted(ALL - {"chat:write", "channels:read"}))
def test_a_missing_scope_is_named_with_what_it_is_for(
    slack: FakeSlack, capsys: pytest.CaptureFixture[str], scope: str
) -> None:
    slack.scopes.remove(scope)
    status, said = checked(slack, capsys, channel="C000000001", tokens=BOTH)
    assert status == 1
    assert f"missing  scope {scope}, for " in said
    assert "OAuth & Permissions" in said


def test_a_channel_that_cannot_be_looked_up_by_its_id_is_no_fault(
    slack: FakeSlack, capsys: pytest.CaptureFixture[str]
) -> None:
    slack.scopes.remove("channels:read")
    status, said = checked(slack, capsys, channel="C000000001", tokens=BOT)
    assert (status, "note     channel C000000001: not looked up" in said) == (0, True)
    status, said = checked(slack, capsys, channel="#gpu-alerts", tokens=BOT)
    assert (status, "missing  scope channels:read, for channels given by name" in said) == (1, True)


def test_a_channel_without_the_bot_says_how_to_invite_it(slack: FakeSlack, capsys: pytest.CaptureFixture[str]) -> None:
    slack.channel("gpu-alerts").member = False
    status, said = checked(slack, capsys, tokens=BOT)
    assert status == 1
    assert "missing  channel #gpu-alerts: the bot is not a member: type /invite @pyrometer" in said


def test_archived_and_unknown_channels_are_named(slack: FakeSlack, capsys: pytest.CaptureFixture[str]) -> None:
    slack.channel("gpu-alerts").archived = True
    assert "missing  channel #gpu-alerts is archived" in checked(slack, capsys, channel="C000000001", tokens=BOT)[1]
    status, said = checked(slack, capsys, channel="C0NOTTHERE", tokens=BOT)
    assert (status, "missing  channel C0NOTTHERE: Slack says channel_not_found: check the id" in said) == (1, True)


def test_every_routed_channel_is_checked(slack: FakeSlack, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "alerting.yaml"
    file.write_text('routing: {routes: [{match: {component: nic}, channel: "#fabric"}]}\n', encoding="utf-8")
    status, said = checked(slack, capsys, f"--config.file={file}", tokens=BOT)
    assert (status, "missing  channel #fabric: Slack says channel_not_found" in said) == (1, True)


@pytest.mark.parametrize(("tokens", "expected"), [
    ({"PYROMETER_SLACK_BOT_TOKEN": "xoxb-wrong"}, "missing  bot token: Slack says invalid_auth: copy the Bot User"),
    ({**BOT, "PYROMETER_SLACK_APP_TOKEN": "xapp-wrong"}, "missing  app token: Slack says invalid_auth"),
])  # fmt: skip
def test_a_wrong_token_is_named(
    slack: FakeSlack, capsys: pytest.CaptureFixture[str], tokens: dict[str, str], expected: str
) -> None:
    status, said = checked(slack, capsys, tokens=tokens)
    assert (status, expected in said) == (1, True)


def test_without_a_token_it_says_which_flag(slack: FakeSlack, capsys: pytest.CaptureFixture[str]) -> None:
    status, said = checked(slack, capsys, tokens={})
    assert (status, "no bot token: give --slack.bot-token-file" in said) == (2, True)


def test_a_slack_that_is_away_is_one_line(slack: FakeSlack, capsys: pytest.CaptureFixture[str]) -> None:
    slack.down()
    status, said = checked(slack, capsys, tokens=BOT)
    assert (status, said.count("\n"), said.startswith("missing  bot token: Slack says ")) == (1, 1, True)
    slack.up()


def test_the_manifest_asks_for_what_is_needed_and_for_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["check-slack", "--manifest"], {}) == 0
    printed = capsys.readouterr().out
    assert printed == MANIFEST.read_text(encoding="utf-8")
    manifest = yaml.safe_load(printed)
    asked = set(manifest["oauth_config"]["scopes"]["bot"])
    assert asked == {*NEEDED.values(), "commands", "groups:history", "groups:read"}
    assert manifest["settings"]["socket_mode_enabled"] is manifest["settings"]["interactivity"]["is_enabled"] is True
    assert [each["command"] for each in manifest["features"]["slash_commands"]] == ["/pyrometer"]


def test_the_manual_has_the_manifest(capsys: pytest.CaptureFixture[str]) -> None:
    assert f"```yaml\n{MANIFEST.read_text(encoding='utf-8')}```" in (ROOT / "docs/slack.md").read_text(encoding="utf-8")
