"""Which NUMA nodes the resources of a container come from (topology manager)."""
