"""What runtimes do that they should not, and how the agent lives with it."""
