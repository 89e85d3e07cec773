"""Which CPUs containers run on (CPU manager)."""
