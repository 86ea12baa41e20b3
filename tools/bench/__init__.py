"""Benchmarks: `affidavit bench NAME`. Each module has `run(quick) -> dict`, flat, with the keys that are documented there.

Ratios come from alternating runs side by side; peers live in `.venv-peers` and run under the same cores; a peer that
cannot be installed gives null.
"""

NAMES = ("audit", "ocr", "scheduler")
