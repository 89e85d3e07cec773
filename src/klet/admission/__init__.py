"""Which pods this node admits."""
