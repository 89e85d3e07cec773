"""Port to the container runtime: CRI calls, their deadlines and errors, and the event streams."""
