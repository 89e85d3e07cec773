"""What a node keeps on disk so that its pods start again while the API server is away."""
