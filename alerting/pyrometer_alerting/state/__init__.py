"""Incidents between deliveries: the store, the outbox table, their lifecycle, correlation, metrics."""
