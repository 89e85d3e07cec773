"""The node as a whole: what it can do now, and what it reports about itself."""
