"""Upstream's control plane on loopback, to test klet on and to compare it with (see scripts/upstream)."""
