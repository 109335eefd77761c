"""Docker for the trials of other systems and the tests of the compose files: the engine that runs, else one of our own.

Only images of others are stood in for, with the same programs from Debian's packages, as no registry is asked.
"""
