"""A zoo of whole machines, as data in ``tests/zoo``: each plays a week of its ordinary life, and then its losses.

Run ``python -m pyrometer_simulator.zoo [--write FILE] [MACHINES ...]``; ``tests/zoo/README.md`` describes a machine.
"""
