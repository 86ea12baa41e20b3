"""A JSON object whose members are read in exactly one form each; anything else is refused."""

from collections.abc import Mapping
from typing import TypeGuard

from affidavit.libs.canonicaljson import Json
from affidavit.libs.evidence.draft import HASH_BYTES


def parse_uint64(value: Json) -> int:
    """A 64-bit integer in its shortest decimal form, or ValueError."""
    if not isinstance(value, str) or not (value.isascii() and value.isdecimal()):
        raise ValueError(f"{value!r} is no decimal string")
    number = int(value)
    if str(number) != value or number >= 2**64:
        raise ValueError(f"{value!r} is no 64-bit integer in its shortest form")
    return number


class Members:
    """Raises ValueError wherever a member is missing, unknown, or of another form than asked for."""

    def __init__(self, value: Json, known: frozenset[str], sometimes: frozenset[str]) -> None:
        if not isinstance(value, dict):
            raise ValueError("not a JSON object")
        if missing := known - sometimes - value.keys():
            raise ValueError(f"members are missing: {', '.join(sorted(missing))}")
        if unknown := value.keys() - known:
            raise ValueError(f"members are unknown: {', '.join(sorted(unknown))}")
        self._value = value

    def has(self, name: str) -> bool:
        return name in self._value

    def value(self, name: str) -> Json:
        return self._value[name]

    def text(self, name: str) -> str:
        value = self._value[name]
        if not _is_text(value):
            raise ValueError(f"{name} {value!r} is no text")
        return value

    def text_or_none(self, name: str) -> str | None:
        return None if self._value[name] is None else self.text(name)

    def texts(self, name: str) -> tuple[str, ...]:
        items = self.items(name)
        texts = tuple(item for item in items if _is_text(item))
        if len(texts) != len(items):
            raise ValueError(f"{name} has an item that is no text")
        return texts

    def items(self, name: str) -> tuple[Json, ...]:
        value = self._value[name]
        if not isinstance(value, list):
            raise ValueError(f"{name} is no list")
        return tuple(value)

    def word(self, name: str, words: Mapping[int, str]) -> str:
        value = self.text(name)
        if value not in words.values():
            raise ValueError(f"{name} {value!r} is unknown")
        return value

    def boolean(self, name: str) -> bool:
        value = self._value[name]
        if not isinstance(value, bool):
            raise ValueError(f"{name} {value!r} is neither true nor false")
        return value

    def uint64(self, name: str) -> int:
        return parse_uint64(self._value[name])

    def uint64_or_none(self, name: str) -> int | None:
        return None if self._value[name] is None else self.uint64(name)

    def hash_or_none(self, name: str) -> bytes | None:
        if self._value[name] is None:
            return None
        text = self.text(name)
        if len(text) != 2 * HASH_BYTES or text.strip("0123456789abcdef"):
            raise ValueError(f"{name} is not {HASH_BYTES} bytes in lower-case hex")
        return bytes.fromhex(text)

    def object_or_none(self, name: str) -> Mapping[str, Json] | None:
        value = self._value[name]
        if value is not None and not isinstance(value, dict):
            raise ValueError(f"{name} is no JSON object")
        return value


def _is_text(value: Json) -> TypeGuard[str]:
    return isinstance(value, str) and bool(value)
