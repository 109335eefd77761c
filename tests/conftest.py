"""Settings of every test: property tests have no deadline, as they are not about the machine's speed."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("pyrometer", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("pyrometer")
