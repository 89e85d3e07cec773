"""The child process that makes and reads keys and certificates. The agent never imports this package."""
