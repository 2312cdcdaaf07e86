"""What all suites share: properties are searched without a clock, for cores may be busy with other things."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "house", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("house")
