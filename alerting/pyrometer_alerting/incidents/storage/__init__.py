"""The store of incidents and of what is still to be posted: one set of statements, in SQLite or in PostgreSQL."""
