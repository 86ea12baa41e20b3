"""The interceptor chain of every server, in order: request id, trace, auth, tenant and quota, metrics, errors.

Each stage is an async context manager around the call; `Chain` puts them around any of the four kinds of handler.
"""

import hashlib
import time
import uuid
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from typing import Any, cast

import grpc
import structlog
from grpc_status import rpc_status
from prometheus_client import Counter as MetricCounter
from prometheus_client import Gauge, Histogram

from affidavit.libs.errors import AffidavitError
from affidavit.libs.rpc.call import CallInfo, current_call, set_current_call
from affidavit.libs.telemetry import get_logger

Context = grpc.aio.ServicerContext[Any, Any]
Stage = Callable[[CallInfo, Context, Mapping[str, str]], AbstractAsyncContextManager[None]]

_log = get_logger("rpc")
_calls = MetricCounter("affidavit_rpc_calls_total", "Calls answered", ["service", "method", "code"])
_seconds = Histogram(
    "affidavit_rpc_duration_seconds",
    "Time from a call's arrival to its last message",
    ["service", "method"],
    buckets=(0.001, 0.005, 0.02, 0.1, 0.5, 2, 10, 60, 600),
)
_active = Gauge("affidavit_rpc_active_calls", "Calls being answered", ["service", "method"])

MAX_REQUEST_ID = 128


class Chain(grpc.aio.ServerInterceptor):
    """Runs `stages` around every handler, first stage outermost. Health and reflection pass straight through."""

    def __init__(self, stages: Sequence[Stage], *, outermost: bool = False) -> None:
        """`outermost`: this chain hands the responses to grpc, and no interceptor stands before it."""
        self._stages = stages
        self._outermost = outermost

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler: Any = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or not method.startswith("/affidavit."):
            return handler
        metadata = {k: v for k, v in handler_call_details.invocation_metadata or () if isinstance(v, str)}
        return self._wrap(handler, method, metadata)

    def _wrap(self, handler: Any, method: str, metadata: Mapping[str, str]) -> Any:
        make = {
            (False, False): grpc.unary_unary_rpc_method_handler,
            (False, True): grpc.unary_stream_rpc_method_handler,
            (True, False): grpc.stream_unary_rpc_method_handler,
            (True, True): grpc.stream_stream_rpc_method_handler,
        }[handler.request_streaming, handler.response_streaming]

        if handler.response_streaming:
            inner_stream = handler.stream_stream or handler.unary_stream

            async def stream(request: Any, context: Context) -> AsyncIterator[Any]:
                async with self._around(method, context, metadata):
                    async for response in inner_stream(request, context):
                        yield response

            async def write(request: Any, context: Context) -> None:
                # grpc drops an async generator when its caller leaves, and Python then closes it from a task of its own,
                # in another context, where traces and logs cannot be unwound. Here it is closed in the call's own task.
                async with (
                    self._around(method, context, metadata),
                    aclosing(inner_stream(request, context)) as responses,
                ):
                    async for response in responses:
                        await context.write(response)

            behaviour: Any = write if self._outermost else stream
        else:
            inner_unary = handler.stream_unary or handler.unary_unary

            async def unary(request: Any, context: Context) -> Any:
                async with self._around(method, context, metadata):
                    return await inner_unary(request, context)

            behaviour = unary
        return make(behaviour, handler.request_deserializer, handler.response_serializer)

    @asynccontextmanager
    async def _around(self, method: str, context: Context, metadata: Mapping[str, str]) -> AsyncGenerator[None]:
        outer = current_call()  # the chain before this one has begun to fill it
        call = outer if outer.method == method else CallInfo(method=method, request_id="")
        async with AsyncExitStack() as stack:
            for stage in self._stages:
                await stack.enter_async_context(stage(call, context, metadata))
            yield


@asynccontextmanager
async def request_id(call: CallInfo, context: Context, metadata: Mapping[str, str]) -> AsyncGenerator[None]:
    """Takes `x-request-id`, or makes one; binds it to this task's logs; reads the routing metadata."""
    given = metadata.get("x-request-id", "")
    usable = 0 < len(given) <= MAX_REQUEST_ID and given.isprintable() and " " not in given
    call.request_id = given if usable else str(uuid.uuid4())
    call.model_version = metadata.get("x-model-version", "")
    priority = metadata.get("x-priority", "")
    call.priority = int(priority) if priority.isdecimal() and len(priority) == 1 else call.priority
    set_current_call(call)
    structlog.contextvars.bind_contextvars(request_id=call.request_id)
    try:
        yield
    finally:
        # Not by token: a stream that its caller left is closed from another task, in another context.
        structlog.contextvars.unbind_contextvars("request_id")
        set_current_call(None)


def auth(tokens: Mapping[str, str], required: bool) -> Stage:
    """`authorization: Bearer <token>`; `tokens` maps the SHA-256 (hex) of each token to its tenant."""

    @asynccontextmanager
    async def stage(call: CallInfo, context: Context, metadata: Mapping[str, str]) -> AsyncGenerator[None]:
        scheme, _, token = metadata.get("authorization", "").partition(" ")
        if token and scheme.lower() == "bearer":
            tenant = tokens.get(hashlib.sha256(token.encode()).hexdigest())
            if tenant is None:
                await _abort(call, context, AffidavitError("UNAUTHENTICATED", "this token is not known here"))
            call.tenant = cast("str", tenant)
        elif required:
            await _abort(call, context, AffidavitError("UNAUTHENTICATED", "send authorization: Bearer <token>"))
        yield

    return stage


def quota(max_calls_per_tenant: int) -> Stage:
    """At most so many calls at once for each tenant; one more is refused at once, with RetryInfo."""
    running: Counter[str] = Counter()

    @asynccontextmanager
    async def stage(call: CallInfo, context: Context, metadata: Mapping[str, str]) -> AsyncGenerator[None]:
        if running[call.tenant] >= max_calls_per_tenant:
            message = f"tenant {call.tenant} already has {max_calls_per_tenant} calls running"
            await _abort(call, context, AffidavitError("QUOTA_EXCEEDED", message))
        running[call.tenant] += 1
        try:
            yield
        finally:
            running[call.tenant] -= 1
            if not running[call.tenant]:
                del running[call.tenant]

    return stage


def metrics(service: str) -> Stage:
    @asynccontextmanager
    async def stage(call: CallInfo, context: Context, metadata: Mapping[str, str]) -> AsyncGenerator[None]:
        method = call.method.rpartition("/")[2]
        begin = time.perf_counter()
        with _active.labels(service, method).track_inprogress():
            try:
                yield
            finally:
                _calls.labels(service, method, call.code).inc()
                _seconds.labels(service, method).observe(time.perf_counter() - begin)

    return stage


@asynccontextmanager
async def errors(call: CallInfo, context: Context, metadata: Mapping[str, str]) -> AsyncGenerator[None]:
    """Turns an AffidavitError into its status, and anything unexpected into INTERNAL with the request id."""
    try:
        yield
    except AffidavitError as error:
        await _abort(call, context, error)
    except (grpc.aio.AbortError, GeneratorExit):
        raise
    except Exception as error:
        _log.error("call_failed", method=call.method, exc_info=error)
        await _abort(call, context, AffidavitError("INTERNAL", f"internal fault; request id {call.request_id}"))
    except BaseException:  # cancelled: the client left or its deadline passed
        call.code = "CANCELLED"
        raise


async def _abort(call: CallInfo, context: Context, error: AffidavitError) -> None:
    call.code = error.code.name
    _log.info("call_refused", method=call.method, reason=error.reason, message=error.message)
    status: Any = rpc_status.to_status(error.to_status())
    await context.abort_with_status(status)


__all__ = ["Chain", "auth", "errors", "metrics", "quota", "request_id"]
