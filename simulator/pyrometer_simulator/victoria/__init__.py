"""VictoriaMetrics' cluster version on loopback, with the flags of compose.scale.yaml, and faults of its parts."""
