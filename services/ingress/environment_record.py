"""The environment as a record of its own: written at start and when it has changed, pointed to by every answer."""

import hashlib
from collections.abc import Mapping

from affidavit.evidence.v1 import evidence_pb2
from affidavit.libs import canonicaljson
from affidavit.libs.canonicaljson import Json
from affidavit.libs.evidence.commitment import new_salt
from affidavit.preprocess.v1 import preprocess_pb2
from affidavit.services.ingress.appender import Appends


class EnvironmentRecord:
    """This machine's facts and those of the preprocess service, in the log once: the key is their hash, so that a restart
    in the same environment adds nothing."""

    def __init__(self, appender: Appends, facts: Mapping[str, Json]) -> None:
        self._appender = appender
        self._facts = dict(facts)
        # By the record's body: as many as there are preprocess replicas of different versions.
        self._indices: dict[bytes, int] = {}

    @property
    def known(self) -> bool:
        return bool(self._indices)

    async def index(self, preprocess: preprocess_pb2.PreprocessInfo) -> int:
        """Index of the record that says these facts; appends it when it is not there yet.

        Raises:
            AffidavitError: LOG_UNAVAILABLE.
        """
        body = canonicaljson.dumps({**self._facts, "preprocess": _facts_of(preprocess)})
        if body not in self._indices:
            digest = hashlib.sha256(body).digest()
            draft = evidence_pb2.RecordDraft(
                tenant="default",
                request_id=f"environment-{digest.hex()[:40]}",
                kind=evidence_pb2.RECORD_KIND_ENVIRONMENT,
                phase=evidence_pb2.RECORD_PHASE_SINGLE,
                options_json=b"{}",
                status="ok",
                body_json=body,
            )
            receipt = await self._appender.append("environment", draft, salt=new_salt(), content_digest=digest)
            if receipt.HasField("spooled"):  # its number is provisional; the next answer asks again
                return receipt.index
            self._indices[body] = receipt.index
        return self._indices[body]


def _facts_of(info: preprocess_pb2.PreprocessInfo) -> Json:
    return {"pdfium": info.pdfium, "pillow": info.pillow, "software": info.software, "version": info.version}
