"""The channel: messages, pictures and pages, their delivery to Slack and other outlets, and what people answer."""
