"""The alerting service: Alertmanager's webhook in, one Slack message per incident out."""
