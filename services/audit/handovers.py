"""The rotations of the log's key, as evidence: each record, its audit path, and the checkpoint that both keys signed."""

from affidavit.libs.errors import AffidavitError
from affidavit.libs.evidence.logkeys import CHECKPOINT_SUFFIX, RETIRED, LogKeys
from affidavit.libs.evidence.rotation import Handover
from affidavit.services.audit.log import EvidenceLog


def handovers(log: EvidenceLog) -> list[Handover]:
    """Oldest first; empty when the key was never rotated.

    Raises:
        AffidavitError: LOG_DAMAGED: a record, a hash or a kept checkpoint is missing.
    """
    keys = log.keys_folder
    found: list[Handover] = []
    for retired in LogKeys.read(keys).retired:
        index = retired.until - 1
        path = keys / RETIRED / f"{index}{CHECKPOINT_SUFFIX}"
        try:
            note = path.read_bytes()
        except OSError as error:
            message = f"{path}, the checkpoint that two keys of the log signed, cannot be read: {error.strerror}"
            raise AffidavitError("LOG_DAMAGED", f"{message}; restore the keys folder from a backup") from None
        found.append(Handover(log.leaf(index), tuple(log.prove(index, index + 1)), note))
    return found
