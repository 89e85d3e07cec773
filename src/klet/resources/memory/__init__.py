"""Memory and huge pages of NUMA nodes that a container is given alone (memory manager)."""
