"""Outlets besides Slack: webhook, PagerDuty, Opsgenie, Microsoft Teams and e-mail, all on Slack's outbox.

Why not apprise, which speaks to a hundred services: it has no notion of an incident that is updated and resolved
(it sends a title and a body once), hides which failed calls may have succeeded, and would add five packages. Each
kind here is one short module on `requests` or `smtplib`.
"""
