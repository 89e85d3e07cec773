"""Resources that pods were allocated, apart from what they ask for."""
