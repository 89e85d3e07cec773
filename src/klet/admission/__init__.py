"""Which pods this node takes in."""
