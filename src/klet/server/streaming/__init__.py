"""exec, attach and port forwarding: what is asked for, and the way to the runtime's streaming endpoint."""
