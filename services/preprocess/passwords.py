"""The byte strings that a password may mean to a PDF, in the order in which they are tried.

PDF 2.0 (revision 6) takes UTF-8 of the SASLprep'ed text (ISO 32000-2, 7.6.4.3.2); older files took whatever bytes the
writing program had, mostly Latin-1 or UTF-8 as typed.
"""

import stringprep
import unicodedata

from affidavit.libs.errors import AffidavitError

MAX_CHARACTERS = 512

_PROHIBITED = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)


def password_candidates(password: str) -> tuple[bytes, ...]:
    """Bytes to try; none when no password was given.

    Raises:
        AffidavitError: INVALID_OPTION when it is too long or holds a NUL.
    """
    if not password:
        return ()
    if len(password) > MAX_CHARACTERS or "\0" in password:
        message = f"the password must have at most {MAX_CHARACTERS} characters and no NUL"
        raise AffidavitError("INVALID_OPTION", message, field="options.password")
    prepared = saslprep(password)
    texts = [password] if prepared is None else [prepared, password]
    candidates = [text.encode("utf-8", "surrogatepass") for text in texts]
    candidates += [text.encode("latin-1") for text in texts if max(map(ord, text)) < 256]
    # Last the empty one: a file that everybody may read opens with a password that it did not need.
    return tuple(dict.fromkeys([*candidates, b""]))


def saslprep(text: str) -> str | None:
    """RFC 4013 for a stored string; None where it prohibits the text, or leaves nothing of it.

    >>> saslprep("I\\u00adX"), saslprep("\\u00aa"), saslprep("\\u2168"), saslprep("\\u0007")
    ('IX', 'a', 'IX', None)
    """
    mapped = "".join(" " if stringprep.in_table_c12(c) else c for c in text if not stringprep.in_table_b1(c))
    normal = unicodedata.ucd_3_2_0.normalize("NFKC", mapped)
    if not normal or any(prohibited(c) for c in normal for prohibited in _PROHIBITED):
        return None
    if any(stringprep.in_table_a1(c) for c in normal):
        return None
    # RFC 3454, 6: right-to-left text holds no left-to-right letter and starts and ends right-to-left.
    if any(map(stringprep.in_table_d1, normal)):
        ends = stringprep.in_table_d1(normal[0]) and stringprep.in_table_d1(normal[-1])
        if any(map(stringprep.in_table_d2, normal)) or not ends:
            return None
    return normal
