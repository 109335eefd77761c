"""Sources of evidence: Alertmanager, the batches of a run, its expected MFU, the wiring of the cluster."""
