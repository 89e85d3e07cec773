"""Misbehaviour of runtimes, and the agent's workarounds."""
