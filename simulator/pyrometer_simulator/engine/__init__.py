"""A container engine for the tests of the compose files, where none runs and no registry can be reached."""
