"""The pods this node should run (pod manager)."""
