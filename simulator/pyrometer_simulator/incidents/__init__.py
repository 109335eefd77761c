"""Incidents of a GPU cluster from its metrics to the Slack message, watched for 15 minutes and scored.

A world is a cluster with a training run, one planted fault and red herrings, as the series that the exporters would
serve. It is written into a real Prometheus, the project's rules are evaluated over it, and the real alerting service
is driven on a clock of its own, so that fifteen minutes take seconds. ``python -m pyrometer_simulator.incidents``.
"""
