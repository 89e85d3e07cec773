"""Certificates of pods: requested for their projected volumes, renewed, forgotten (podcertificate manager)."""
