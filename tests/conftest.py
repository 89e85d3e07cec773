"""What holds for all tests."""

from hypothesis import HealthCheck, settings

# A busy machine may stop a process for a while. How long a test may take is in pyproject.toml (`deadlines`).
settings.register_profile("klet", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("klet")
