"""Random stories of a node for the simulation, and what must be true in all of them."""
