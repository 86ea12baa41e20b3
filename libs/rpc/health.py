"""Asking a service for its health (grpc.health.v1)."""

from typing import Any, cast

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc


async def is_serving(channel: grpc.aio.Channel, name: str, timeout_s: float) -> bool:
    """Whether the service says SERVING for `name`: a full proto name for readiness, "" for liveness.

    Raises:
        grpc.aio.AioRpcError: it does not answer within `timeout_s`.
    """
    stub = cast("Any", health_pb2_grpc.HealthStub(channel))  # the type stubs know the server side alone
    answer = await stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=timeout_s)
    return answer.status == health_pb2.HealthCheckResponse.SERVING
