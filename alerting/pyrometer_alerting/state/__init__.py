"""What survives a crash and how it changes: the store, the outbox table, the life of incidents, metrics."""
