"""Incidents: alerts received and asked for, their grouping and lifecycle, and the store that keeps them."""
