"""The evidence log: append-only, synced before it answers, provable to anyone with its public key.

    stream ▶ append_stream ▶ appender (bounded queue, one writer thread) ▶ log ▶ group ▶ store (RocksDB), head (file)

Policy, each on one screen: what is placed where (`group.py`), what is durable before an acknowledgement (`log.py`),
what a start accepts (`opening.py`).
"""
