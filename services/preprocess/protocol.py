"""What the service and its sandboxed workers say to each other: one datagram a message, JSON, bounded.

The worker parses hostile files and may be taken over by one, so the service reads its answers as hostile too: types,
ranges and names are checked here, and no text of a worker reaches a caller or a log.

The pixels of a drawn page stand in the worker's area, a memory file mapped by both sides.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, cast

MAX_MESSAGE_BYTES = 16 << 10
MAX_SIDE = 65_535
# Geometry is in sint32 hundredths of a point.
MAX_GEOMETRY = 2**31 - 1

MEDIA_TYPES = ("application/pdf", "image/png", "image/jpeg", "image/tiff", "image/webp")

# Reasons a worker may give; everything else it says is a crash.
REASONS = (
    "UNSUPPORTED_FORMAT",
    "DAMAGED_DOCUMENT",
    "NO_PAGES",
    "PASSWORD_REQUIRED",
    "PASSWORD_WRONG",
    "IMAGE_TOO_LARGE",
    "PAGE_BROKEN",
)


@dataclass(frozen=True)
class WorkerLimits:
    """What a worker may use and make."""

    memory_bytes: int  # private memory beyond what the worker has at its start
    document_bytes: int  # largest document, mapped read-only
    cpu_s: int  # processor seconds in the worker's whole life
    page_pixels: int  # most pixels of a drawn page
    page_side: int  # most pixels of a drawn page's longer side
    image_pixels: int  # most pixels of a picture that is decoded

    @property
    def area_bytes(self) -> int:
        """Size of the memory file that a page is drawn into: three bytes a pixel."""
        return self.page_pixels * 3

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "WorkerLimits":
        return cls(**json.loads(text))


class Ready(NamedTuple):
    """The worker is confined and waits for a document."""

    features: tuple[str, ...]  # of the sandbox, in force
    pdfium: str  # version
    pillow: str  # version


class Open(NamedTuple):
    """Open the document that comes with this message as a file descriptor."""

    passwords: tuple[bytes, ...]  # tried in this order; none when the caller gave none


class Opened(NamedTuple):
    page_count: int
    media_type: str


class Draw(NamedTuple):
    """Draw a page into the area."""

    page: int  # 0-based


class Drawn(NamedTuple):
    """A page, drawn; its pixels are the first width x height x channels bytes of the area."""

    width: int
    height: int
    channels: int  # 1: grey; 3: blue, green, red
    page_width: int  # as PageImage.page_width
    page_height: int
    pixel_scale: int


class Close(NamedTuple):
    """Forget the document."""


class Closed(NamedTuple):
    pass


class Refused(NamedTuple):
    """The document or the page cannot be read."""

    reason: str


Request = Open | Draw | Close
Reply = Ready | Opened | Drawn | Closed | Refused


class ProtocolError(Exception):
    """The other side said something that the protocol does not have."""


def encode(message: Request | Reply) -> bytes:
    fields: dict[str, Any] = message._asdict()
    if isinstance(message, Open):
        fields["passwords"] = [password.hex() for password in message.passwords]
    data = json.dumps({"message": type(message).__name__, **fields}).encode()
    if len(data) > MAX_MESSAGE_BYTES:
        raise ProtocolError(f"message of {len(data)} bytes")
    return data


def decode_request(data: bytes) -> Request:
    """A request, in the worker. The service is trusted."""
    fields = json.loads(data)
    match fields.pop("message"):
        case "Open":
            return Open(tuple(bytes.fromhex(password) for password in fields["passwords"]))
        case "Draw":
            return Draw(**fields)
        case "Close":
            return Close()
        case name:
            raise ProtocolError(f"no request {name!r}")


def decode_reply(data: bytes, limits: WorkerLimits) -> Reply:
    """A worker's reply, checked.

    Raises:
        ProtocolError: it is not one, or breaks a limit.
    """
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        raise ProtocolError("no JSON") from None
    if not isinstance(fields, dict):
        raise ProtocolError("no object")
    reply = _Fields(cast("dict[str, Any]", fields))
    match fields.get("message"):
        case "Ready":
            return Ready(reply.names("features"), reply.text("pdfium"), reply.text("pillow"))
        case "Opened":
            return Opened(reply.number("page_count", 1, 2**31 - 1), reply.one_of("media_type", MEDIA_TYPES))
        case "Drawn":
            drawn = Drawn(
                width=reply.number("width", 1, min(MAX_SIDE, limits.page_side)),
                height=reply.number("height", 1, min(MAX_SIDE, limits.page_side)),
                channels=reply.number("channels", 1, 3),
                page_width=reply.number("page_width", 1, MAX_GEOMETRY),
                page_height=reply.number("page_height", 1, MAX_GEOMETRY),
                pixel_scale=reply.number("pixel_scale", 0, 100),
            )
            if drawn.channels == 2 or drawn.width * drawn.height > limits.page_pixels:
                raise ProtocolError("page of an impossible size")
            return drawn
        case "Closed":
            return Closed()
        case "Refused":
            return Refused(reply.one_of("reason", REASONS))
        case _:
            raise ProtocolError("no such reply")


class _Fields:
    """Fields of a reply, each checked where it is taken."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields

    def number(self, name: str, least: int, most: int) -> int:
        value = self._fields.get(name)
        if type(value) is not int or not least <= value <= most:
            raise ProtocolError(f"{name} is out of range")
        return value

    def text(self, name: str) -> str:
        value = self._fields.get(name)
        if not isinstance(value, str) or len(value) > 100 or not value.isprintable():
            raise ProtocolError(f"{name} is no short text")
        return value

    def one_of(self, name: str, allowed: Sequence[str]) -> str:
        value = self.text(name)
        if value not in allowed:
            raise ProtocolError(f"{name} is not one of {allowed}")
        return value

    def names(self, name: str) -> tuple[str, ...]:
        value = self._fields.get(name)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in cast("list[Any]", value)):
            raise ProtocolError(f"{name} is no list of names")
        return tuple(cast("list[str]", value))[:20]
