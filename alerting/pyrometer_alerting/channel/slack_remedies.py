"""Map a code of Slack's to what to do about it, for the check, the service's page and its log.

Sources: the errors of auth.test, chat.postMessage, chat.update and conversations.* (docs.slack.dev/reference/methods);
membership, archived and restricted channels (slack.com/help, "Manage who can post in channels").
"""

from __future__ import annotations

from collections.abc import Mapping

REINSTALL = "add it under OAuth & Permissions, Bot Token Scopes, then reinstall the app"
INVITE = "type /invite @pyrometer in the channel"
RESTORE = "restore the channel or choose another"
_POSTING = "let the app post there (channel settings, posting permissions; or the workspace's administrators)"
_ADMINISTRATORS = "ask the workspace's administrators"
_NETWORK = "check network and proxy from here to slack.com, and status.slack.com"
_WAIT = "nothing to do: it is sent again after the time that Slack names"
_BUG = "report it as a bug, with this line"

REMEDIES: Mapping[str, str] = {
    "invalid_auth": "copy the Bot User OAuth Token again (OAuth & Permissions; an app token: Basic Information), and"
    " see whether the app allows this address",
    "not_authed": "the token is empty: copy the Bot User OAuth Token (OAuth & Permissions)",
    "token_revoked": "reinstall the app and copy its new token",
    "token_expired": "switch token rotation off in the app's manifest, reinstall and copy the new token",
    "account_inactive": "the app was removed from the workspace: install it again",
    "not_allowed_token_type": "this is the wrong kind of token: use xoxb- for the bot, xapp- for Socket Mode",
    "missing_scope": REINSTALL,
    "no_permission": INVITE,
    "access_denied": "see whether the app may use this channel (its approval, shared channels), else "
    + _ADMINISTRATORS,
    "accesslimited": "the workspace takes no calls from this network: allow its address",
    "enterprise_is_restricted": "install the app in a workspace, not in the organization",
    "org_login_required": "the workspace moves to an organization: wait, or " + _ADMINISTRATORS,
    "team_added_to_org": "the workspace moves to an organization: wait",
    "two_factor_setup_required": "set up two-factor authentication for the one who installed the app",
    "team_access_not_granted": "install the app in the channel's workspace",
    "team_not_found": "install the app in the channel's workspace",
    "channel_not_found": "check the id (channel details, bottom); the bot sees private channels only as a member",
    "not_in_channel": INVITE,
    "is_archived": RESTORE,
    "is_inactive": RESTORE,
    "messages_tab_disabled": "switch the Messages Tab on (App Home), or choose a channel",
    "ekm_access_denied": "administrators have suspended posting: " + _ADMINISTRATORS,
    "restricted_action": _POSTING,
    "restricted_action_read_only_channel": _POSTING,
    "restricted_action_thread_only_channel": "this channel takes threads alone: choose another",
    "restricted_action_non_threadable_channel": "this channel takes no threads: choose another",
    "restricted_action_thread_locked": "somebody has locked the thread: unlock it",
    "ratelimited": _WAIT,
    "message_limit_exceeded": "the workspace sends too many messages for its plan: " + _ADMINISTRATORS,
    "edit_window_closed": "let members edit messages at any time (workspace settings)",
    "cant_update_message": "the message is of another app or token: it is posted again",
    "deprecated_endpoint": "install a newer release of Pyrometer",
    "method_deprecated": "install a newer release of Pyrometer",
    "invalid_blocks": _BUG,
    "msg_too_long": _BUG,
    "msg_blocks_too_long": _BUG,
    "unreachable": _NETWORK,
    "http_503": _NETWORK,
    "internal_error": _NETWORK,
    "fatal_error": _NETWORK,
    "service_unavailable": _NETWORK,
    "request_timeout": _NETWORK,
}


def with_remedy(code: str) -> str:
    """Return the code with what to do about it; alone if no table lists it."""
    remedy = REMEDIES.get(code, "")
    return f"{code}: {remedy}" if remedy else code
