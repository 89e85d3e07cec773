"""What klet costs, beside the floor: the same work with no kubelet at all. Run as root: `python -m bench --help`."""

import os

# Otherwise gRPC writes a line for each process that is started beside it.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
