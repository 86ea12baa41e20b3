"""PKCS#11 URIs (RFC 7512), as far as they name one private key in one token.

pkcs11:token=affidavit;object=log?module-path=/usr/lib/softhsm/libsofthsm2.so&pin-source=/run/secrets/pin
"""

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote_to_bytes, urlsplit

from affidavit.libs.evidence.keys import KeyFileError

SCHEME = "pkcs11:"
_PATH = frozenset({"token", "serial", "object", "id", "type"})
_QUERY = frozenset({"module-path", "pin-source"})


@dataclass(frozen=True)
class TokenUri:
    """Which key, and where its token's library and PIN are if the URI says so."""

    text: str
    token: str = ""
    serial: bytes = b""
    object: str = ""
    id: bytes = b""
    module: str = ""
    pin_source: str = ""  # a file's path

    @classmethod
    def parse(cls, text: str) -> "TokenUri":
        """Raises KeyFileError unless `text` names a token and a key in it, by attributes that are known here."""
        path, _, query = text.removeprefix(SCHEME).partition("?")
        found = _attributes(path, ";", _PATH, text) | _attributes(query, "&", _QUERY, text)
        kind = found.pop("type", b"private")
        if not text.startswith(SCHEME) or kind != b"private":
            raise KeyFileError(f"{text} is no pkcs11: URI of a private key")
        if not found.keys() & {"token", "serial"} or not found.keys() & {"object", "id"}:
            raise KeyFileError(f"{text} must name a token (token= or serial=) and a key in it (object= or id=)")
        try:
            texts = {name: found[name].decode() for name in found.keys() - {"serial", "id"}}
        except UnicodeDecodeError:
            raise KeyFileError(f"{text}: an attribute is not UTF-8") from None
        return cls(
            text,
            texts.get("token", ""),
            found.get("serial", b""),
            texts.get("object", ""),
            found.get("id", b""),
            texts.get("module-path", ""),
            _file(texts.get("pin-source", ""), text),
        )


def _attributes(part: str, separator: str, known: frozenset[str], text: str) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for attribute in part.split(separator) if part else []:
        name, equals, value = attribute.partition("=")
        if name == "pin-value":
            raise KeyFileError(
                "a PIN in the URI is seen by everyone who lists processes: use pin-source, or the settings"
            )
        if name not in known or not equals or not value or name in found:
            raise KeyFileError(
                f"{text}: {attribute!r} is unknown, empty or there twice; known: {', '.join(sorted(known))}"
            )
        found[name] = unquote_to_bytes(value)
    return found


def _file(source: str, text: str) -> str:
    """The path in a pin-source: a path or a file: URI. Programs (`|command`) are not run."""
    if not source:
        return ""
    parts = urlsplit(source)
    path = parts.path if parts.scheme == "file" and not parts.netloc else source
    if not Path(path).is_absolute():
        raise KeyFileError(f"{text}: pin-source must be an absolute path, or file: and one")
    return path
