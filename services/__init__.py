"""One gRPC process each; thin: wire, call, answer. A service imports no other service."""
