"""The bounded store of cause records."""
