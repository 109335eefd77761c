"""Parts of the simulated driver beyond the basics, one subject per file.

A module here may define ``functions(library)``, which gives C functions by name, and ``field(library, moment, field,
scope)``, which gives ``(kind, value)`` of a field value or None where it isn't the one to ask. Both are found by
themselves. State is what ``SimulatedGpu.set(name=value)`` left, read with ``library.extra(moment, name, default)``.
"""
