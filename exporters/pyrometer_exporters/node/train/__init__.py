"""Training steps, through the client's rings."""
