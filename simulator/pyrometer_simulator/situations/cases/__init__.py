"""The situations themselves, by subject; each module has a list ``SITUATIONS``."""
