"""The gRPC protocols: .proto files and the modules generated from them."""
