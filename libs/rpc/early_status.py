"""A server's refusal reaches a client that is still sending.

grpc.aio loses it (grpc/grpc#36066, in 1.85 still): a write that fails because the server has already ended the call
overwrites the status that the server sent with "Internal error from Core". Of small uploads that were refused at once,
3 in 100 came out as INTERNAL; of 20 MB uploads refused on their way, 96 in 100. This is grpc's own `_write` but for
that: it keeps the server's status, or waits a moment for it.
"""

import asyncio
from typing import Any, cast

from grpc import _common
from grpc._cython import cygrpc
from grpc.aio import _call

# When Core itself refuses a write there is no status to come.
_STATUS_WITHIN_S = 1.0


async def _write(self: Any, request: Any) -> None:
    if self.done():
        raise asyncio.InvalidStateError(cast("Any", _call)._RPC_ALREADY_FINISHED_DETAILS)
    if self._done_writing_flag:
        raise asyncio.InvalidStateError(cast("Any", _call)._RPC_HALF_CLOSED_DETAILS)
    if not self._metadata_sent.is_set():
        await self._metadata_sent.wait()
        if self.done():
            await self._raise_for_status()
    serialized_request = cast("Any", _common).serialize(request, self._request_serializer)
    try:
        await self._cython_call.send_serialized_message(serialized_request)
    except cast("Any", cygrpc).InternalError as error:
        try:
            async with asyncio.timeout(_STATUS_WITHIN_S):
                await self._cython_call.status()
        except TimeoutError:
            self._cython_call.set_internal_error(str(error))
        await self._raise_for_status()
    except asyncio.CancelledError:
        if not self.cancelled():
            self.cancel()
        raise


def keep_early_status() -> None:
    """Repair every channel of this process."""
    cast("Any", _call)._StreamRequestMixin._write = _write
