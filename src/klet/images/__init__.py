"""Images on the node: making sure a container's image is there."""
