"""Whole situations of a cluster, played on a virtual clock under the real collectors and the real alert rules.

::

    steps on simulated hardware -> the real collectors, in process -> the served text, as series -> promtool -> alerts
    (sysfs, procfs, NVML, kmsg)    at scrapes every 5, 15 or 30 s     (values, gaps, stale)

A hand-made series shows what its author thinks that an exporter serves; these show what it serves. A situation is a
:class:`Situation` in the list ``SITUATIONS`` of a module in ``cases``; ``tests/alert_rules`` plays them
all, and ``make situations`` writes the table of ``docs/situations.md`` from the same outcomes.
"""
