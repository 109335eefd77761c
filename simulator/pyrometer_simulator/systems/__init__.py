"""The project's first commands on other systems: `make demo` and the tests, inside debootstrapped chroots.

`python -m pyrometer_simulator.systems` (as root; `make test-systems`) builds the chroots, runs the commands in each as
root and as an ordinary user, with what a machine may allow or forbid (`profiles`), and writes a table of results.
"""
