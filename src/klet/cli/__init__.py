"""Commands for people at the node. Never imported by the agent."""
