"""Values that more than one subsystem speaks of. Types and pure helpers only."""
