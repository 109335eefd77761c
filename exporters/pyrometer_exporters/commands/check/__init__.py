"""``pyrometer-check``: is this node fit for a job?"""
