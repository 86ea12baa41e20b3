"""RFC 8785 JSON without floats: the only form in which affidavit hashes JSON.

>>> dumps({"b": 1, "a": ["é", None, True]})
b'{"a":["\\xc3\\xa9",null,true],"b":1}'

Confidence and scores are integers of 1/10000, geometry of 1/100 pt, 64-bit integers strings: an integer beyond 2^53 or
a float is refused, because other people's JSON readers would not give the same bytes back.
"""

import json
from typing import TypeAlias

Json: TypeAlias = "bool | int | str | list[Json] | tuple[Json, ...] | dict[str, Json] | None"

MAX_SAFE_INTEGER = 2**53 - 1


def dumps(value: Json) -> bytes:
    """The RFC 8785 bytes of `value`.

    Raises:
        ValueError: a float, an integer beyond +-(2^53 - 1), a key that is not a string, or a lone surrogate.
    """
    _refuse(value)
    try:
        return json.dumps(_sorted(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"text with a lone surrogate has no UTF-8 form: {error}") from None


def loads(data: bytes) -> Json:
    """The value of canonical bytes.

    Raises:
        ValueError: `data` is not JSON, or not in the canonical form (so that one value has one hash).
    """
    try:
        value: Json = json.loads(data)
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8: {error}") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if dumps(value) != data:
        raise ValueError("not RFC 8785: the same value has other canonical bytes")
    return value


def _refuse(value: Json) -> None:
    match value:
        case None | bool() | str():
            return
        case int():
            if abs(value) > MAX_SAFE_INTEGER:
                raise ValueError(f"integer {value} is beyond 2^53 - 1; write it as a string")
        case list() | tuple():
            for item in value:
                _refuse(item)
        case dict():
            for key, item in value.items():
                if not isinstance(key, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers' mistakes
                    raise ValueError(f"key {key!r} is not a string")
                _refuse(item)
        case _:
            raise ValueError(f"{type(value).__name__} has no canonical form here")


def _sorted(value: Json) -> Json:
    # RFC 8785 3.2.3: members sorted by the UTF-16 code units of their names.
    if isinstance(value, dict):
        return {k: _sorted(value[k]) for k in sorted(value, key=lambda k: k.encode("utf-16-be", "surrogatepass"))}
    if isinstance(value, (list, tuple)):
        return [_sorted(item) for item in value]
    return value
