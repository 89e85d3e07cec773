"""The node as a whole: what it can do now, and what it tells others about itself."""
