"""Prometheus metrics of batchers. Label `model` is the batcher's name, `code` how an item ended."""

from prometheus_client import Counter, Gauge, Histogram

items = Counter(
    "affidavit_batch_items_total", "Items by how they ended (OK, FULL, FAILED, CANCELLED)", ["model", "code"]
)
waiting = Gauge("affidavit_batch_waiting_items", "Items in the queue", ["model"])
size = Histogram(
    "affidavit_batch_size_items", "Items in a batch", ["model"], buckets=(1, 2, 3, 4, 6, 8, 12, 16, 32, 64, 128)
)
queue_seconds = Histogram(
    "affidavit_batch_queue_seconds",
    "Time that an item waited for its batch",
    ["model"],
    buckets=(0.0005, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 20, 60),
)
engine_seconds = Histogram(
    "affidavit_batch_engine_seconds",
    "Time that a batch spent in the engine",
    ["model"],
    buckets=(0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 20, 60),
)
