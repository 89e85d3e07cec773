"""One module per kind of volume."""
