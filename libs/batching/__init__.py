"""Batches for an engine: awaited one by one from asyncio, run together in engine threads.

    def read(crops: list[Crop]) -> list[str]: ...           # in an engine thread

    batcher = Batcher("rec", read, capacity=1024, max_batch=6, max_wait_us=50_000, hold_us=0)
    texts = await asyncio.gather(*(batcher.submit(crop, group=crop.width) for crop in crops))
    await batcher.close()

Who shares a batch is decided by `affidavit._native.DynamicBatchScheduler`; this package carries items to the engine
threads, results back to the loop, and the facts that health and metrics need.
"""

from affidavit.libs.batching.batcher import Batcher
from affidavit.libs.batching.health import BatchHealth

__all__ = ["BatchHealth", "Batcher"]
