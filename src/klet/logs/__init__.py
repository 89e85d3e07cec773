"""Container log files in the CRI format."""
