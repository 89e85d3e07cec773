"""The composition root: settings, wiring, lifecycle."""
