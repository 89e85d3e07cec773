"""KubeletConfiguration, flags and feature gates: load, default, merge, validate."""
