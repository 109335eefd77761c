"""Incidents as Slack blocks, as text, as a page and as pictures."""
