"""What is known of the call being answered: who asks, under which id, how urgently."""

from contextvars import ContextVar
from dataclasses import dataclass

DEFAULT_TENANT = "default"


@dataclass
class CallInfo:
    """Facts of one incoming call, from its metadata."""

    method: str
    request_id: str
    model_version: str = ""  # x-model-version: `bundle@version` or an alias; empty means "promoted"
    priority: int = 5  # x-priority, 0 (last) to 9 (first)
    tenant: str = DEFAULT_TENANT  # from the token only
    code: str = "OK"  # set by the error stage, read by the metrics stage


_current: ContextVar[CallInfo | None] = ContextVar("affidavit_call", default=None)


def current_call() -> CallInfo:
    """The call that this task answers; a fresh one with an empty request id outside of any."""
    return _current.get() or CallInfo(method="", request_id="")


def set_current_call(call: CallInfo | None) -> None:
    _current.set(call)
