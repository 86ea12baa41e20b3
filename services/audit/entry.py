"""What asks for a place in the log: an item as it was sent, once it is known that record v1 can hold it.

Items stay the bytes that they came as. The native reader sees at a glance that a usual one is sound; any other is parsed
and checked here, and refused with words.
"""

from google.protobuf.message import DecodeError

from affidavit import _native
from affidavit.audit.v1 import audit_pb2
from affidavit.libs.errors import AffidavitError
from affidavit.libs.evidence.draft import HASH_BYTES, check_draft, check_name

Entry = _native.LogItem  # checked


def read_request(message: bytes) -> list[_native.LogItem]:
    """The items of a serialised AppendRecordsRequest, not yet `checked`.

    Raises:
        AffidavitError: INVALID_STREAM: it is none.
    """
    try:
        return _native.read_append_request(message)
    except ValueError:  # none, or one that an unusual encoder wrote
        try:
            request = audit_pb2.AppendRecordsRequest.FromString(message)
        except DecodeError as error:
            raise AffidavitError("INVALID_STREAM", f"a message is no AppendRecordsRequest: {error}") from None
        return [_native.LogItem(item.SerializeToString()) for item in request.items]


def checked(item: _native.LogItem) -> Entry:
    """`item`, if record v1 can hold it. Raises AffidavitError (INVALID_OPTION)."""
    if item.plain:
        return item
    try:
        return _checked(audit_pb2.AppendItem.FromString(item.data))
    except DecodeError as error:
        raise AffidavitError("INVALID_OPTION", f"an item is no AppendItem: {error}", field="items") from None


def entry_of(item: audit_pb2.AppendItem) -> Entry:
    """The same for a message. Raises AffidavitError (INVALID_OPTION)."""
    return checked(_native.LogItem(item.SerializeToString()))


def _checked(item: audit_pb2.AppendItem) -> Entry:
    check_name("step", item.step)
    check_draft(item.draft, item.salt)
    if len(item.content_digest) != HASH_BYTES:
        message = f"content_digest must be {HASH_BYTES} bytes, has {len(item.content_digest)}"
        raise AffidavitError("INVALID_OPTION", message, field="content_digest")
    return _native.LogItem(item.SerializeToString())  # in the one form in which this library writes it
