"""The conductor: sync loop, pod workers, the steps of a pod sync."""
