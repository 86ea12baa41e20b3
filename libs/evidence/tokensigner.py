"""A private key that never leaves its PKCS#11 token: Ed25519 by CKM_EDDSA (PKCS#11 3.0, 6.3.14).

Needs the extra `pkcs11` (python-pkcs11) and the token's own library.
"""

from collections.abc import Callable

import pkcs11
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pkcs11.exceptions import PKCS11Error, UserAlreadyLoggedIn

from affidavit.libs.errors import AffidavitError
from affidavit.libs.evidence.keys import KeyFileError
from affidavit.libs.evidence.tokenuri import TokenUri

_KEY_BYTES = 32
_OCTET_STRING = bytes((0x04, _KEY_BYTES))  # DER header of CKA_EC_POINT; some tokens leave it out


class TokenSigner:
    """One key of one token, in one session. Belongs to one thread at a time, as the log does that signs with it."""

    def __init__(self, uri: TokenUri, module: str, pin: Callable[[str], str]) -> None:
        """Open the token, log in and find the key.

        Args:
            module: the token's library, where the URI has no module-path.
            pin: the PIN, given the URI's pin-source.

        Raises:
            KeyFileError: there is no such library, token, login, or key.
        """
        self._uri = uri
        self._module = uri.module or module
        if not self._module:
            raise KeyFileError(f"{uri.text}: no PKCS#11 library is named: AFFIDAVIT_AUDIT_KEY_MODULE, or module-path")
        self._pin = pin(uri.pin_source)
        if not self._pin:
            raise KeyFileError(
                f"{uri.text}: no PIN: AFFIDAVIT_AUDIT_KEY_PIN_FILE, AFFIDAVIT_AUDIT_KEY_PIN or pin-source"
            )
        self._key, self._public = self._open()

    def public_key(self) -> Ed25519PublicKey:
        return self._public

    def sign(self, data: bytes, /) -> bytes:
        """The 64-byte signature.

        Raises:
            AffidavitError: LOG_UNAVAILABLE: the token does not sign, nor when it is opened anew.
        """
        try:
            return self._sign(data)
        except PKCS11Error:  # it was taken out and put back, or the session had an end
            pass
        try:
            self._key, public = self._open()
            if public != self._public:
                raise KeyFileError(f"{self._uri.text} is another key than before")
            return self._sign(data)
        except (PKCS11Error, KeyFileError) as error:
            message = f"the token does not sign: {_words(error)}; see that it is there, the log then goes on by itself"
            raise AffidavitError("LOG_UNAVAILABLE", message) from None

    def _sign(self, data: bytes) -> bytes:
        return bytes(self._key.sign(data, mechanism=pkcs11.Mechanism.EDDSA))

    def _open(self) -> tuple[pkcs11.SignMixin, Ed25519PublicKey]:
        uri = self._uri
        try:
            library = pkcs11.lib(self._module)
            token = library.get_token(token_label=uri.token or None, token_serial=uri.serial or None)
            session = _session(token, self._pin)
            private, public = (
                session.get_key(object_class=kind, label=uri.object or None, id=uri.id or None)
                for kind in (pkcs11.ObjectClass.PRIVATE_KEY, pkcs11.ObjectClass.PUBLIC_KEY)
            )
            point = bytes(public[pkcs11.Attribute.EC_POINT])
            if not isinstance(private, pkcs11.SignMixin) or private.key_type is not pkcs11.KeyType.EC_EDWARDS:
                raise KeyFileError(f"{uri.text} is no Ed25519 key")
        except (PKCS11Error, RuntimeError, OSError) as error:
            what = f"{uri.text}, by {self._module}: {_words(error)}"
            raise KeyFileError(f"{what}; the token needs the private key and its public key under one name") from None
        raw = point.removeprefix(_OCTET_STRING) if len(point) != _KEY_BYTES else point
        if len(raw) != _KEY_BYTES:
            raise KeyFileError(f"{uri.text} is no Ed25519 key: its point has {len(raw)} bytes")
        return private, Ed25519PublicKey.from_public_bytes(raw)


def _session(token: pkcs11.Token, pin: str) -> pkcs11.Session:
    try:
        return token.open(user_pin=pin)
    except UserAlreadyLoggedIn:  # a login counts for the whole process
        return token.open()


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__
