"""The `affidavit` command: supervisor, clients, benchmarks."""
