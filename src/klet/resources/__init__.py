"""QoS, cgroups and resource accounting."""
