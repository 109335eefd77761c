"""Alerts on their way in: the webhook, reconciliation with Alertmanager and Prometheus, missed alerts."""
