"""Reading the log in order: which indices a list selects, and its records step by step.

Times rise with the index, so a time is found by bisection; one request's records are neighbours under its key. Only
what is left is read record by record, in bounded steps on a worker thread, so that a long list delays no append.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from affidavit.audit.v1 import audit_pb2
from affidavit.evidence.v1 import evidence_pb2
from affidavit.libs.errors import AffidavitError
from affidavit.libs.evidence.record import KINDS
from affidavit.services.audit.head import SignedHead
from affidavit.services.audit.log import EvidenceLog

STEP_RECORDS = 4096  # read between two looks at whether the caller is still there: about 20 ms
MESSAGE_BYTES = 1 << 20
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True)
class Selection:
    """A checked list request against one head."""

    head: SignedHead
    indices: range  # by index and time, before the other conditions
    tenant: str
    request_id: str
    bundle: str
    kind: str
    limit: int  # 0 for all
    newest_first: bool

    def fits(self, leaf: bytes) -> bool:
        """Whether the conditions on the record itself hold."""
        if not (self.tenant or self.request_id or self.bundle or self.kind):
            return True
        record = json.loads(leaf)
        bundle: str = record["bundle"] or ""
        return (
            (not self.tenant or record["tenant"] == self.tenant)
            and (not self.request_id or record["request_id"] == self.request_id)
            and (not self.bundle or bundle == self.bundle or bundle.startswith(self.bundle + "@"))
            and (not self.kind or record["kind"] == self.kind)
        )


async def list_records(
    log: EvidenceLog, request: audit_pb2.ListRecordsRequest
) -> AsyncIterator[audit_pb2.ListRecordsResponse]:
    """The answers to `request`: the covering checkpoint and the range first, then records as they are found.

    Raises:
        AffidavitError: INVALID_OPTION: an end before its beginning, an unknown kind. LOG_DAMAGED: a record is missing.
    """
    selection = await asyncio.to_thread(_select, log, request)
    response = audit_pb2.ListRecordsResponse(checkpoint=evidence_pb2.Checkpoint(note=selection.head.note))
    if selection.indices:
        response.range.first, response.range.last = selection.indices[0], selection.indices[-1]
    yield response
    candidates = await asyncio.to_thread(_candidates, log, selection)
    left = selection.limit or len(candidates)
    response, size = audit_pb2.ListRecordsResponse(), 0
    for begin in range(0, len(candidates), STEP_RECORDS):
        step = candidates[begin : begin + STEP_RECORDS]
        for index, leaf in await asyncio.to_thread(_step, log, selection, step, left):
            if size and size + len(leaf) > MESSAGE_BYTES:
                yield response
                response, size = audit_pb2.ListRecordsResponse(), 0
            response.records.add(index=index, leaf=leaf)
            size += len(leaf)
            left -= 1
        if response.records:  # what is found is shown, also while the rest of a long search finds nothing
            yield response
            response, size = audit_pb2.ListRecordsResponse(), 0
        if not left:
            return


def _select(log: EvidenceLog, request: audit_pb2.ListRecordsRequest) -> Selection:
    head = log.head
    begin, end = request.first_index, head.tree.size
    if request.HasField("last_index"):
        if request.last_index < begin:
            message = f"last_index {request.last_index} is before first_index {begin}"
            raise AffidavitError("INVALID_OPTION", message, field="last_index")
        end = min(end, request.last_index + 1)
    times = [
        getattr(request, name).ToNanoseconds() if request.HasField(name) else None for name in ("from_time", "to_time")
    ]
    if times[0] is not None and times[1] is not None and times[1] < times[0]:
        raise AffidavitError("INVALID_OPTION", "to_time is before from_time", field="to_time")
    if request.kind and request.kind not in KINDS:
        raise AffidavitError("INVALID_OPTION", f"no record kind has the number {request.kind}", field="kind")
    if times[0] is not None:
        begin = _first_at(log, begin, end, times[0])
    if times[1] is not None:
        end = _first_at(log, begin, end, times[1])
    kind = KINDS[request.kind] if request.kind else ""
    return Selection(
        head,
        range(begin, max(begin, end)),
        request.tenant,
        request.request_id,
        request.bundle,
        kind,
        request.limit,
        request.newest_first,
    )


def _first_at(log: EvidenceLog, begin: int, end: int, time_ns: int) -> int:
    """The first index of `begin` to `end` whose record was stamped at or after `time_ns`; `end` if none was."""
    while begin < end:
        middle = (begin + end) // 2
        if _stamped_ns(log.leaf(middle)) < time_ns:
            begin = middle + 1
        else:
            end = middle
    return begin


def _stamped_ns(leaf: bytes) -> int:
    record: dict[str, Any] = json.loads(leaf)
    return (datetime.fromisoformat(record["time"]) - _EPOCH) // _MICROSECOND * 1000


def _candidates(log: EvidenceLog, selection: Selection) -> range | list[int]:
    """Indices that may fit, in the order asked for."""
    found: range | list[int] = selection.indices
    if selection.tenant and selection.request_id:
        of_request = log.indices_of(selection.tenant, selection.request_id)
        found = [index for index in of_request if index in selection.indices]
    return found[::-1] if selection.newest_first else found


def _step(log: EvidenceLog, selection: Selection, indices: range | list[int], limit: int) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    for index in indices:
        leaf = log.leaf(index)
        if selection.fits(leaf):
            found.append((index, leaf))
            if len(found) == limit:
                break
    return found
