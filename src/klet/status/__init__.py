"""Pod status computed from what the runtime shows."""
