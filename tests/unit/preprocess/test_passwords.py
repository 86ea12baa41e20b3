"""A password is prepared as PDF 2.0 says, and tried in the forms that older writers used."""

import pytest

from affidavit.libs.errors import AffidavitError
from affidavit.services.preprocess.passwords import password_candidates, saslprep


@pytest.mark.parametrize(
    ("text", "prepared"),
    [
        # RFC 4013, section 3
        ("I\u00adX", "IX"),
        ("user", "user"),
        ("USER", "USER"),
        ("\u00aa", "a"),
        ("\u2168", "IX"),
        ("\u0007", None),
        ("\u0627\u0031", None),
        # further
        ("S\u00aaSL\u00adprep", "SaSLprep"),
        ("a\u00a0b", "a b"),
        ("\u00ad", None),
        ("\u0627\u0628", "\u0627\u0628"),
        ("\u0221", None),
        ("\ue000", None),
    ],
)
def test_saslprep_gives_what_the_rfc_says(text: str, prepared: str | None) -> None:
    assert saslprep(text) == prepared


def test_the_prepared_form_is_tried_first_then_the_one_typed_then_latin_1_and_at_last_none() -> None:
    assert password_candidates("S\u00aaSL\u00adprep") == (
        b"SaSLprep",
        "S\u00aaSL\u00adprep".encode(),
        "S\u00aaSL\u00adprep".encode("latin-1"),
        b"",
    )


def test_a_plain_password_is_tried_once() -> None:
    assert password_candidates("secret") == (b"secret", b"")


def test_without_a_password_nothing_is_tried() -> None:
    assert password_candidates("") == ()


@pytest.mark.parametrize("password", ["x" * 513, "a\0b"])
def test_a_password_that_no_pdf_can_have_is_refused(password: str) -> None:
    with pytest.raises(AffidavitError) as caught:
        password_candidates(password)
    assert caught.value.reason == "INVALID_OPTION"
    assert password not in caught.value.message
