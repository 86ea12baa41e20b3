"""A service's process: server, interceptors, health, metrics, drain."""

import asyncio
import json
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, cast

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from opentelemetry.instrumentation.grpc import aio_server_interceptor, filters
from pydantic import BaseModel, Field

from affidavit.libs.errors import AffidavitError
from affidavit.libs.rpc import interceptors
from affidavit.libs.rpc.limits import SERVER_OPTIONS
from affidavit.libs.runtime import SERVICE_NAMES, die_with_parent
from affidavit.libs.settings import SettingsError, load
from affidavit.libs.telemetry import configure_logging, configure_tracing, get_logger, serve_metrics

_Status = health_pb2.HealthCheckResponse
_log = get_logger("server")
S = TypeVar("S", bound="RpcSettings")


class RpcSettings(BaseModel):
    """Settings that every service has."""

    address: str = Field("", description="host:port or unix:/path to listen on")
    metrics_address: str = Field("", description="host:port of the Prometheus page; empty for none")
    log_level: str = Field("INFO", pattern="^(DEBUG|INFO|WARNING|ERROR)$", description="least severe log level shown")
    drain_s: float = Field(10.0, ge=0, le=600, description="seconds that running calls get when the service stops")
    canary_interval_s: float = Field(5.0, gt=0, le=3600, description="seconds between two canary inferences")
    canary_timeout_s: float = Field(30.0, gt=0, le=600, description="seconds after which a canary counts as failed")
    max_calls_per_tenant: int = Field(256, ge=1, le=100_000, description="calls at once for each tenant")
    tokens_file: str = Field(
        "", description="JSON file: SHA-256 of each token (hex) to its tenant; empty for no tokens"
    )
    require_token: bool = Field(False, description="refuse calls without a token")
    reflection: bool = Field(True, description="serve gRPC reflection")


class ServiceHost:
    """One gRPC server in one process.

    `run` starts it, answers liveness (`""`) at once and readiness (the service's full name) once the canary has
    succeeded, keeps running the canary, and drains on SIGTERM or SIGINT: NOT_SERVING first, then no new calls, then the
    running ones get `drain_s`.
    """

    def __init__(self, service: str, settings: RpcSettings) -> None:
        self.service = service
        self.settings = settings
        self.name = SERVICE_NAMES[service]
        die_with_parent()
        configure_logging(service, settings.log_level)
        configure_tracing(service)
        tokens = json.loads(Path(settings.tokens_file).read_text("utf-8")) if settings.tokens_file else {}
        stages = [
            interceptors.auth(cast("dict[str, str]", tokens), settings.require_token),
            interceptors.quota(settings.max_calls_per_tenant),
            interceptors.metrics(service),
            interceptors.errors,
        ]
        self.server = grpc.aio.server(
            interceptors=[
                interceptors.Chain([interceptors.request_id], outermost=True),
                cast("Any", aio_server_interceptor)(filter_=cast("Any", filters.service_prefix)("affidavit")),
                interceptors.Chain(stages),
            ],
            options=SERVER_OPTIONS,
        )
        self._health = health.aio.HealthServicer()
        self._stopping = asyncio.Event()

    async def run(self, *, canary: Callable[[], Awaitable[None]], close: Callable[[], Awaitable[None]]) -> None:
        """Serve until SIGTERM or SIGINT.

        Args:
            canary: one real inference through the service's own path; raises when its answer is wrong.
            close: frees what the service holds, after the last call has ended.
        """
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self.server)
        if self.settings.reflection:
            names = [self.name, health.SERVICE_NAME, reflection.SERVICE_NAME]
            reflection.enable_server_reflection(names, self.server)
        await self._health.set(self.name, _Status.NOT_SERVING)
        bound = self.server.add_insecure_port(self.settings.address)
        serve_metrics(self.settings.metrics_address)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        await self.server.start()
        _log.info("listening", address=self.settings.address, port=bound)
        watch = asyncio.create_task(self._watch(canary), name="canary")
        try:
            await self._stopping.wait()
            _log.info("draining", seconds=self.settings.drain_s)
            watch.cancel()
            with suppress(asyncio.CancelledError):
                await watch
            await self._health.enter_graceful_shutdown()
            await self.server.stop(self.settings.drain_s)
        finally:
            await close()
        _log.info("stopped")

    @property
    def draining(self) -> asyncio.Event:
        """Set when the drain begins: streams that have no end of their own end then."""
        return self._stopping

    def stop(self) -> None:
        """Begin to drain, as SIGTERM does."""
        self._stopping.set()

    async def _watch(self, canary: Callable[[], Awaitable[None]]) -> None:
        """Readiness follows the canary: SERVING after it succeeds, NOT_SERVING after it fails."""
        serving = False
        while True:
            try:
                async with asyncio.timeout(self.settings.canary_timeout_s):
                    await canary()
                ok = True
            except Exception as error:
                ok = False
                _log.error("canary_failed", error=f"{type(error).__name__}: {error}")
            if ok != serving:
                serving = ok
                await self._health.set(self.name, _Status.SERVING if ok else _Status.NOT_SERVING)
                _log.info("readiness", serving=serving)
            await asyncio.sleep(self.settings.canary_interval_s if ok else 1.0)


def run_service(model: type[S], service: str, serve: Callable[[S], Awaitable[None]]) -> None:
    """A service's `main`: settings from flags, environment and file, then `serve` until it ends. Exit code 2 for settings
    that do not fit, 4 for damaged evidence that a person must look at, 1 for a service that cannot start otherwise."""
    try:
        settings = load(model, service, sys.argv[1:]).values
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(2)
    try:
        asyncio.run(cast("Any", serve(settings)))
    except AffidavitError as error:
        sys.stderr.write(f"{service} cannot start: {error}\n")
        sys.exit(4 if error.reason == "LOG_DAMAGED" else 1)
