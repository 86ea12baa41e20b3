"""gRPC limits and keepalive, the same on both ends."""

from typing import Any

# A page of 16 Mpx in three bytes a pixel, sent inline, is 48 MiB.
MAX_MESSAGE_BYTES = 64 << 20

_COMMON: list[tuple[str, Any]] = [
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
]

CHANNEL_OPTIONS: list[tuple[str, Any]] = [
    *_COMMON,
    # A restarted peer is found again within a second, not after grpc's default two minutes of backoff.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.enable_retries", 0),  # one owner of retries: ingress
]

SERVER_OPTIONS: list[tuple[str, Any]] = [
    *_COMMON,
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.so_reuseport", 0),  # a second process on a port is an error, not a silent half of the traffic
]
