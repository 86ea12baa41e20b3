"""Where a log's private key is: in the keys folder, in a file that someone else keeps, or in a PKCS#11 token."""

from dataclasses import dataclass, field
from pathlib import Path

from affidavit.libs.evidence.keys import PRIVATE_NAME, KeyFileError, Signer, load_private_key
from affidavit.libs.evidence.tokenuri import SCHEME, TokenUri


@dataclass(frozen=True)
class KeySource:
    """A private key's place; nothing is opened until `load`."""

    place: str = ""  # "" for log.key in the keys folder, which the log makes itself; a PEM file; or a pkcs11: URI
    module: str = ""  # the token's PKCS#11 library, where the URI has no module-path
    pin_file: str = ""  # file of the token's PIN, where the URI has no pin-source
    pin: str = field(default="", repr=False)

    @property
    def own(self) -> bool:
        """Whether the key is the log's own file, made and replaced by it."""
        return not self.place

    @property
    def in_token(self) -> bool:
        return self.place.startswith(SCHEME)

    def elsewhere(self, place: str) -> "KeySource":
        """Another key, by the same module and PIN."""
        return KeySource(place, self.module, self.pin_file, self.pin)

    def where(self, keys: Path) -> str:
        """For people: the file's path or the URI, never a PIN."""
        return self.place if self.in_token else str(self._path(keys))

    def load(self, keys: Path) -> Signer:
        """What signs; nothing is written.

        Args:
            keys: the log's keys folder.

        Raises:
            FileNotFoundError: there is no such file.
            KeyFileError: the file is readable to others or no Ed25519 key; or the token has no such key, or does not
                open.
        """
        if not self.in_token:
            return load_private_key(self._path(keys))
        try:
            from affidavit.libs.evidence.tokensigner import TokenSigner  # its library is an extra
        except ImportError as error:
            raise KeyFileError(f"{self.place}: keys in tokens need pip install 'affidavit[pkcs11]': {error}") from None
        return TokenSigner(TokenUri.parse(self.place), self.module, self._pin)

    def _path(self, keys: Path) -> Path:
        return Path(self.place).expanduser() if self.place else keys / PRIVATE_NAME

    def _pin(self, source: str) -> str:
        """The PIN: from the URI's pin-source, else from the settings."""
        path = source or self.pin_file
        if not path:
            return self.pin
        try:
            return Path(path).expanduser().read_text("utf-8").rstrip("\r\n")
        except (OSError, ValueError) as error:
            raise KeyFileError(f"the token's PIN cannot be read from {path}: {error}") from None
