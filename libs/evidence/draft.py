"""What a record may contain, checked before it is given a place in the log."""

import string

from affidavit.evidence.v1 import evidence_pb2
from affidavit.libs import canonicaljson
from affidavit.libs.errors import AffidavitError
from affidavit.libs.evidence.commitment import SALT_BYTES

# A C2SP tlog-tiles entry bundle counts an entry's bytes in 16 bits.
MAX_LEAF_BYTES = 65_535
MAX_NAME = 128
MAX_TEXT = 512
MAX_JSON_BYTES = 32_768
MAX_STEPS = 64
MAX_DEGRADED = 64
HASH_BYTES = 32

_REASON_LETTERS = frozenset(string.ascii_uppercase + string.digits + "_")
_WITH_BODY = frozenset({evidence_pb2.RECORD_KIND_ENVIRONMENT, evidence_pb2.RECORD_KIND_MODEL_EVENT})


def check_draft(draft: evidence_pb2.RecordDraft, salt: bytes) -> None:
    """Refuse a draft that record v1 cannot hold.

    Raises:
        AffidavitError: INVALID_OPTION; `field` names what is at fault.
    """
    check_name("draft.tenant", draft.tenant)
    check_name("draft.request_id", draft.request_id)
    _require(len(salt) == SALT_BYTES, "salt", f"must be {SALT_BYTES} random bytes, has {len(salt)}")
    kinds = evidence_pb2.RecordKind.values()
    _require(draft.kind != 0 and draft.kind in kinds, "draft.kind", "must be a known kind of record")
    phases = evidence_pb2.RecordPhase.values()
    _require(draft.phase != 0 and draft.phase in phases, "draft.phase", "must be single, opened or closed")
    _check_hash("draft.input_commitment", draft.input_commitment)
    _check_hash("draft.output_commitment", draft.output_commitment)
    if draft.options_json:
        _check_object("draft.options_json", draft.options_json)
    _require(status_is_known(draft.status), "draft.status", "must be ok, uncertain, cancelled, failed:REASON or empty")
    _require(len(draft.degraded) <= MAX_DEGRADED, "draft.degraded", f"has more than {MAX_DEGRADED} entries")
    for text in draft.degraded:
        _require(0 < len(text) <= MAX_TEXT, "draft.degraded", f"texts have 1 to {MAX_TEXT} characters")
    _require(len(draft.bundle) <= MAX_TEXT, "draft.bundle", f"has more than {MAX_TEXT} characters")
    _require(len(draft.steps) <= MAX_STEPS, "draft.steps", f"has more than {MAX_STEPS} entries")
    for step in draft.steps:
        _check_step(step)
    _check_children(draft)
    if draft.body_json:
        _require(draft.kind in _WITH_BODY, "draft.body_json", "only environment and model_event records have a body")
        _check_object("draft.body_json", draft.body_json)


def check_name(field: str, name: str) -> None:
    """Refuse a tenant, request id or step name that is not 1 to 128 printable characters."""
    _require(0 < len(name) <= MAX_NAME and name.isprintable(), field, f"must be 1 to {MAX_NAME} printable characters")


def status_is_known(status: str) -> bool:
    """Whether `status` is one that a record may have; empty while the work is still going on."""
    if status in ("", "ok", "uncertain", "cancelled"):
        return True
    word, _, reason = status.partition(":")
    return word == "failed" and 0 < len(reason) <= MAX_NAME and _REASON_LETTERS.issuperset(reason)


def _check_step(step: evidence_pb2.StepEvidence) -> None:
    texts = (step.service, step.software, step.model, step.version, step.engine, step.engine_version, step.precision)
    for text in (*texts, step.device_id):
        _require(len(text) <= MAX_TEXT, "draft.steps", f"texts have at most {MAX_TEXT} characters")
    _require(bool(step.service), "draft.steps.service", "must name the service")
    _check_hash("draft.steps.model_hash", step.model_hash)
    _check_hash("draft.steps.input_digest", step.input_digest)
    _check_hash("draft.steps.output_digest", step.output_digest)


def _check_children(draft: evidence_pb2.RecordDraft) -> None:
    if not draft.children:
        return
    closed = draft.phase == evidence_pb2.RECORD_PHASE_CLOSED
    _require(closed, "draft.children", "only a closing record names the records that it closes over")
    last = -1
    for child in draft.children:
        _require(last < child.first <= child.last, "draft.children", "must be ranges in rising order, without overlap")
        last = child.last


def _check_hash(field: str, digest: bytes) -> None:
    _require(len(digest) in (0, HASH_BYTES), field, f"must be {HASH_BYTES} bytes or empty, has {len(digest)}")


def _check_object(field: str, data: bytes) -> None:
    _require(len(data) <= MAX_JSON_BYTES, field, f"has more than {MAX_JSON_BYTES} bytes")
    try:
        value = canonicaljson.loads(data)
    except (ValueError, RecursionError) as error:
        raise AffidavitError("INVALID_OPTION", f"{field} must be RFC 8785 JSON: {error}", field=field) from None
    _require(isinstance(value, dict), field, "must be a JSON object")


def _require(condition: bool, field: str, message: str) -> None:
    if not condition:
        raise AffidavitError("INVALID_OPTION", f"{field} {message}", field=field)
