"""CSI volumes (upstream: pkg/volume/csi): names and decisions, all pure, and the plugin that carries them out."""
