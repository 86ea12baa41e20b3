"""Benchmarks, one module each: `run(quick)` measures and returns flat figures."""
