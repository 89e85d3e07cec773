"""The test command: the parts of `scripts/test`, and the pytest plugin with deadlines, signals and records."""
