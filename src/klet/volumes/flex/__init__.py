"""Drivers of flexVolume: programs that are run for each step, with JSON answers (upstream: pkg/volume/flexvolume)."""
