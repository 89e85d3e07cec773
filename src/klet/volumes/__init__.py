"""Volumes of pods: set up before their containers start, kept up to date while they run, taken down afterwards."""
