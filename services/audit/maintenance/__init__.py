"""Commands on a log without its service."""
