"""Logs, metrics and traces, set up once a process.

Logs are JSON lines on standard error (`structlog`), one event a line. Metrics are Prometheus text at
`http://<metrics_address>/metrics`. Traces go to `$OTEL_EXPORTER_OTLP_ENDPOINT` when it is set, and nowhere otherwise.
"""

import logging
import os
import sys
from typing import Any

import structlog
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from prometheus_client import start_http_server

Logger = structlog.stdlib.BoundLogger


def configure_logging(service: str, level: str = "INFO") -> None:
    """JSON logs on standard error for this process, ours and the libraries' alike."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _trace_ids,
        lambda _logger, _method, event: {"service": service, **event},
    ]
    structlog.configure(
        processors=[
            *shared,
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(ensure_ascii=False),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level]),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(ensure_ascii=False),
        ],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)


def get_logger(name: str) -> Logger:
    return structlog.get_logger(component=name)


def configure_tracing(service: str) -> None:
    """Export spans over OTLP/gRPC when `$OTEL_EXPORTER_OTLP_ENDPOINT` is set; otherwise spans are not recorded."""
    if not os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
        return
    provider = TracerProvider(resource=Resource.create({"service.name": f"affidavit-{service}"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)


def serve_metrics(address: str) -> None:
    """Serve Prometheus text on `host:port`, from a daemon thread; an empty address serves nothing."""
    if address:
        host, _, port = address.rpartition(":")
        start_http_server(int(port), addr=host)


def _trace_ids(_logger: Any, _method: str, event: structlog.types.EventDict) -> structlog.types.EventDict:
    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        event["trace_id"] = f"{context.trace_id:032x}"
    return event
