"""Hashed JSON has one form: RFC 8785 without floats."""

import json

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from affidavit.libs import canonicaljson

text = st.text(st.characters(exclude_categories=["Cs"]))
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53 - 1), 2**53 - 1) | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=20,
)


@given(values)
def test_the_bytes_are_those_of_another_rfc_8785_implementation(value) -> None:
    assert canonicaljson.dumps(value) == rfc8785.dumps(value)


@given(values)
def test_reading_gives_the_value_back(value) -> None:
    assert canonicaljson.loads(canonicaljson.dumps(value)) == value


@pytest.mark.parametrize(
    "value", [1.5, float("nan"), 2**53, -(2**53), {1: 2}, {"a": [0.0]}, "\ud800", {"\ud800": 1}, object()]
)
def test_what_has_no_single_form_is_refused(value) -> None:
    with pytest.raises(ValueError, match=r"."):
        canonicaljson.dumps(value)


@pytest.mark.parametrize(
    "data",
    [
        b'{"b":1,"a":2}',
        b'{"a": 1}',
        b'{"a":1,"a":1}',
        b"1.0",
        b"1e3",
        b'"\\u0041"',
        b"\xff",
        b"",
        b"NaN",
        b"[" * 100_000,
    ],
)
def test_other_forms_of_a_value_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        canonicaljson.loads(data)


def test_members_are_sorted_by_utf_16_code_units() -> None:
    # RFC 8785 3.2.3: U+1F600 (surrogates D83D DE00) sorts before U+FB33.
    assert json.loads(canonicaljson.dumps({"\ufb33": 1, "\U0001f600": 2})) == {"\U0001f600": 2, "\ufb33": 1}
    assert canonicaljson.dumps({"\ufb33": 1, "\U0001f600": 2}).index("\U0001f600".encode()) == 2
