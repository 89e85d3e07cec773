"""A CSI driver for tests: real gRPC, real or only noted mounts, and faults on demand."""
