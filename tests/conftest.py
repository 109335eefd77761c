"""What holds for every test: property tests are about what is true, not about how long the machine takes."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("pyrometer", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("pyrometer")
