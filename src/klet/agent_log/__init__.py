"""The log that the agent itself writes to stderr. The logs of containers are in `klet.logs`."""
