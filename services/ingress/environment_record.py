"""The environment as a record of its own: written at start and when it has changed, pointed to by every answer."""

import hashlib
from collections.abc import Mapping

from affidavit.evidence.v1 import evidence_pb2
from affidavit.libs import canonicaljson
from affidavit.libs.canonicaljson import Json
from affidavit.libs.evidence.commitment import new_salt
from affidavit.services.ingress.appender import Appender


class EnvironmentRecord:
    """This machine's facts, in the log once: the key is their hash, so that a restart on the same machine adds nothing."""

    def __init__(self, appender: Appender, facts: Mapping[str, Json]) -> None:
        self._appender = appender
        self._body = canonicaljson.dumps(dict(facts))
        self._index: int | None = None

    @property
    def known(self) -> bool:
        return self._index is not None

    async def index(self) -> int:
        """Index of the record; appends it when it is not there yet.

        Raises:
            AffidavitError: LOG_UNAVAILABLE.
        """
        if self._index is None:
            digest = hashlib.sha256(self._body).digest()
            draft = evidence_pb2.RecordDraft(
                tenant="default",
                request_id=f"environment-{digest.hex()[:40]}",
                kind=evidence_pb2.RECORD_KIND_ENVIRONMENT,
                phase=evidence_pb2.RECORD_PHASE_SINGLE,
                options_json=b"{}",
                status="ok",
                body_json=self._body,
            )
            receipt = await self._appender.append("environment", draft, salt=new_salt(), content_digest=digest)
            self._index = receipt.index
        return self._index
