"""Pod lifecycle event generator: runtime events to a fresh view of each pod."""
