"""The port to CSI drivers: the Node service over gRPC."""
