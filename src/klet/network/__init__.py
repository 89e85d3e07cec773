"""Names and addresses of pods."""
