"""Values that more than one subsystem uses. Types and pure helpers only."""
