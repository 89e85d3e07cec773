"""Validation of pods as the API server does it: pure functions from objects to field errors."""
