"""Benchmarks: what `affidavit bench NAME` measures."""
