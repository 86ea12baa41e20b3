"""One exception family for everything that a caller is told, and its two crossings to and from the wire.

Code raises `AffidavitError(Reason.X, "what is wrong and what to do")`; the error interceptor of libs/rpc turns it into
a `google.rpc.Status`; a client's `from_rpc_error` turns it back.
"""

from typing import NamedTuple, cast

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from affidavit.errors.v1 import errors_pb2

DOMAIN = "affidavit"
Reason = errors_pb2.Reason

_C = grpc.StatusCode


class _Rule(NamedTuple):
    code: grpc.StatusCode
    retry_after_s: float | None = None  # RetryInfo only where a retry can help


# The whole policy: which code each reason has, and whether a retry can help.
RULES: dict[str, _Rule] = {
    "INVALID_OPTION": _Rule(_C.INVALID_ARGUMENT),
    "INVALID_STREAM": _Rule(_C.INVALID_ARGUMENT),
    "EMPTY_INPUT": _Rule(_C.INVALID_ARGUMENT),
    "UNSUPPORTED_FORMAT": _Rule(_C.INVALID_ARGUMENT),
    "DAMAGED_DOCUMENT": _Rule(_C.INVALID_ARGUMENT),
    "NO_PAGES": _Rule(_C.INVALID_ARGUMENT),
    "PAGE_OUT_OF_RANGE": _Rule(_C.INVALID_ARGUMENT),
    "PASSWORD_REQUIRED": _Rule(_C.FAILED_PRECONDITION),
    "PASSWORD_WRONG": _Rule(_C.FAILED_PRECONDITION),
    "UPLOAD_TOO_LARGE": _Rule(_C.RESOURCE_EXHAUSTED),
    "TOO_MANY_PAGES": _Rule(_C.RESOURCE_EXHAUSTED),
    "IMAGE_TOO_LARGE": _Rule(_C.RESOURCE_EXHAUSTED),
    "QUEUE_FULL": _Rule(_C.RESOURCE_EXHAUSTED, 1.0),
    "QUOTA_EXCEEDED": _Rule(_C.RESOURCE_EXHAUSTED, 1.0),
    "STORAGE_FULL": _Rule(_C.RESOURCE_EXHAUSTED, 10.0),
    "UPLOAD_STALLED": _Rule(_C.DEADLINE_EXCEEDED),
    "PARSER_TIMEOUT": _Rule(_C.DEADLINE_EXCEEDED),
    "PARSER_CRASHED": _Rule(_C.INVALID_ARGUMENT),
    "PAGE_BROKEN": _Rule(_C.INVALID_ARGUMENT),
    "SERVICE_UNAVAILABLE": _Rule(_C.UNAVAILABLE, 1.0),
    "LOG_UNAVAILABLE": _Rule(_C.UNAVAILABLE, 1.0),
    "DRAINING": _Rule(_C.UNAVAILABLE, 1.0),
    "ENGINE_FAILED": _Rule(_C.INTERNAL),
    "HANDLE_UNREACHABLE": _Rule(_C.FAILED_PRECONDITION),
    "HASH_MISMATCH": _Rule(_C.DATA_LOSS),
    "RECORD_NOT_FOUND": _Rule(_C.NOT_FOUND),
    "BUNDLE_NOT_FOUND": _Rule(_C.NOT_FOUND),
    "IDEMPOTENCY_CONFLICT": _Rule(_C.ALREADY_EXISTS),
    "MODEL_UNVERIFIED": _Rule(_C.FAILED_PRECONDITION),
    "LOG_DAMAGED": _Rule(_C.DATA_LOSS),
    "LOG_FENCED": _Rule(_C.FAILED_PRECONDITION),
    "UNAUTHENTICATED": _Rule(_C.UNAUTHENTICATED),
    "INTERNAL": _Rule(_C.INTERNAL),
}


class AffidavitError(Exception):
    """A refusal or failure that a caller is told.

    Args:
        reason: a value of affidavit.errors.v1.Reason, or its name with or without prefix.
        message: for people: what is wrong and, where it helps, what to do.
        field: the request's field that is at fault (adds BadRequest).
    """

    def __init__(self, reason: "errors_pb2.Reason | int | str", message: str, *, field: str = "") -> None:
        super().__init__(message)
        self.reason = reason_name(reason)
        self.message = message
        self.field = field

    @property
    def code(self) -> grpc.StatusCode:
        return RULES[self.reason].code

    @property
    def retry_after_s(self) -> float | None:
        """Seconds after which a retry may succeed; None where no retry helps."""
        return RULES[self.reason].retry_after_s

    def __str__(self) -> str:
        return self.message

    def to_status(self) -> status_pb2.Status:
        """The `google.rpc.Status` with ErrorInfo and, where they fit, BadRequest and RetryInfo."""
        details = [_pack(error_details_pb2.ErrorInfo(reason=self.reason, domain=DOMAIN))]
        if self.field:
            violation = error_details_pb2.BadRequest.FieldViolation(field=self.field, description=self.message)
            details.append(_pack(error_details_pb2.BadRequest(field_violations=[violation])))
        if self.retry_after_s is not None:
            delay = duration_pb2.Duration(nanos=0)
            delay.FromMilliseconds(int(self.retry_after_s * 1000))
            details.append(_pack(error_details_pb2.RetryInfo(retry_delay=delay)))
        number: int = cast("tuple[int, str]", self.code.value)[0]
        return status_pb2.Status(code=number, message=self.message, details=details)


def reason_name(reason: "errors_pb2.Reason | int | str") -> str:
    """The reason's name as ErrorInfo carries it: `PASSWORD_REQUIRED`."""
    name = reason if isinstance(reason, str) else Reason.Name(cast("errors_pb2.Reason", reason))
    name = name.removeprefix("REASON_")
    if name not in RULES:
        raise ValueError(f"{reason!r} is no affidavit.errors.v1.Reason")
    return name


# grpc's own statuses (no ErrorInfo) by what they mean to a caller of ours. RESOURCE_EXHAUSTED without ErrorInfo is
# grpc's word for an oversized message.
_BARE: dict[grpc.StatusCode, str] = {
    _C.UNAVAILABLE: "SERVICE_UNAVAILABLE",
    _C.RESOURCE_EXHAUSTED: "IMAGE_TOO_LARGE",
    _C.UNAUTHENTICATED: "UNAUTHENTICATED",
}


def from_rpc_error(error: grpc.RpcError, peer: str) -> AffidavitError:
    """What a peer answered, as our exception. A status without our ErrorInfo becomes the reason that fits its code."""
    call = cast("grpc.Call", error)
    status: status_pb2.Status | None = rpc_status.from_call(call)
    for detail in status.details if status else ():
        info = error_details_pb2.ErrorInfo()
        if detail.Unpack(info) and info.domain == DOMAIN and info.reason in RULES:
            return AffidavitError(info.reason, call.details() or "")
    code = call.code()
    return AffidavitError(_BARE.get(code, "INTERNAL"), f"{peer}: {call.details() or code.name}")


def _pack(message: Message) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(message)
    return packed


__all__ = ["DOMAIN", "RULES", "AffidavitError", "Reason", "from_rpc_error", "reason_name"]
