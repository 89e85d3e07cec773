"""Shipped fakes: clocks, the fake runtime, builders and faults. Imported by tests and the composition root only."""
