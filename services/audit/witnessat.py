"""A witness as the settings name it."""

from dataclasses import dataclass

from affidavit.libs.evidence.cosignature import WitnessKey
from affidavit.libs.evidence.note import NoteError


@dataclass(frozen=True)
class WitnessAt:
    """A witness: where it answers, and the key that it signs with."""

    url: str
    key: WitnessKey

    @classmethod
    def parse(cls, text: str) -> "WitnessAt":
        """Raises NoteError unless `text` is `name+id+base64=http://host:port`, the key and the submission prefix."""
        at = text.find("=http")  # base64 may end in `=` too
        if at < 0:
            raise NoteError(f"{text!r} is no witness: name+id+base64=http://host:port")
        return cls(text[at + 1 :].rstrip("/"), WitnessKey.parse(text[:at]))
