"""What pods were given of the node, apart from what they ask for."""
