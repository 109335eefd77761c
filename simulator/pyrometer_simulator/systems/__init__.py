"""The project's first commands on other systems: `make demo` and the tests, in containers of debootstrapped releases.

`python -m pyrometer_simulator.systems` (as root; `make test-systems`) builds the images, runs the commands in each as
root and as an ordinary user, with what a machine may allow or forbid (`profiles`), and writes a table of results.
"""
