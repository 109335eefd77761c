"""Boards as a real Grafana shows them: errors, what it would save, how long it takes, pictures. It installs none."""
