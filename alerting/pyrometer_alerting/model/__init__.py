"""Plain values and how they read: alerts, incidents, messages, text, links and routing."""
