"""Policy: which finding takes a node out of service, how, how many at most, and when it comes back."""
