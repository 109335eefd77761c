"""Where evidence comes from: Alertmanager, the batches of a run, the wiring of the cluster."""
