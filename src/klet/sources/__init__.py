"""The sources of pods (files, URLs, the API server), merged into changes."""
