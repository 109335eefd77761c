"""Messages on their way out: Slack's API, the terminal, the courier that empties the outbox, pictures."""
