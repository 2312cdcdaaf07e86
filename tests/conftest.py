"""What all suites share: how long properties are searched. Never by the clock: cores may be busy."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

EXAMPLES = {"house": 30, "thorough": 500}
"""Examples of a property: in every run, and with `--hypothesis-profile thorough` (`make test-thorough`)."""

for name, examples in EXAMPLES.items():
    settings.register_profile(
        name,
        settings.default,
        max_examples=examples,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
settings.load_profile("house")
