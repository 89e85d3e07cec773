"""What the node, its pods and its containers use, and how it is shown."""
