"""What a worker says is checked as if an attacker said it."""

import json

import pytest

from affidavit.services.preprocess import protocol
from affidavit.services.preprocess.protocol import Draw, Drawn, Open, Opened, ProtocolError, Ready, Refused
from affidavit.services.preprocess.settings import PreprocessSettings

LIMITS = PreprocessSettings().worker_limits()
PAGE = Drawn(1000, 2000, 3, 61200, 79200, 0)


@pytest.mark.parametrize("request_", [Open((b"\x00\xff", b"")), Open(()), Draw(7), protocol.Close()])
def test_requests_arrive_as_they_were_sent(request_: protocol.Request) -> None:
    assert protocol.decode_request(protocol.encode(request_)) == request_


@pytest.mark.parametrize(
    "reply",
    [Ready(("limits",), "1.2", "3"), Opened(3, "image/png"), PAGE, protocol.Closed(), Refused("PAGE_BROKEN")],
)
def test_replies_arrive_as_they_were_sent(reply: protocol.Reply) -> None:
    assert protocol.decode_reply(protocol.encode(reply), LIMITS) == reply


def test_limits_arrive_as_they_were_sent() -> None:
    assert protocol.WorkerLimits.from_json(LIMITS.to_json()) == LIMITS


@pytest.mark.parametrize(
    "reply",
    [
        PAGE._replace(width=0),
        PAGE._replace(width=10_001),
        PAGE._replace(width=8000, height=8000),  # more pixels than the area has
        PAGE._replace(channels=2),
        PAGE._replace(channels=4),
        PAGE._replace(page_width=2**31),
        PAGE._replace(width=True),
        PAGE._replace(height=1.5),
        Opened(0, "image/png"),
        Opened(1, "text/html"),
        Refused("PARSER_CRASHED"),
        Refused("<script>"),
        Ready(("limits",), "1\n2", "3"),
    ],
)
def test_a_reply_outside_the_limits_is_none(reply: protocol.Reply) -> None:
    with pytest.raises(ProtocolError):
        protocol.decode_reply(protocol.encode(reply), LIMITS)


@pytest.mark.parametrize(
    "data", [b"", b"\xff", b"[]", b"1", b"{}", json.dumps({"message": "Draw", "page": 1}).encode(), b"[" * 100_000]
)
def test_nonsense_is_no_reply(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        protocol.decode_reply(data, LIMITS)
