"""Where things stand in a published log: every path rule of C2SP `tlog-tiles`, and nothing else.

| path                         | what                                                                              |
| ---------------------------- | --------------------------------------------------------------------------------- |
| `checkpoint`                 | the newest signed tree head                                                       |
| `tile/<L>/<N>`               | 256 hashes: complete subtrees of level 8 L, numbers 256 N to 256 N + 255          |
| `tile/<L>/<N>.p/<W>`         | the first W (1 to 255) of them, while the tile is not full                        |
| `tile/entries/<N>[.p/<W>]`   | leaves 256 N …, each with its length before it in 16 bits, big-endian             |

N is written in groups of three digits, all but the last after an `x`: 1234067 is `x001/x234/067`.
"""

TILE_WIDTH = 256
TILE_HEIGHT = 8  # levels of the tree in a tile
CHECKPOINT = "checkpoint"


def number_path(number: int) -> str:
    """A tile's number as its path."""
    path = f"{number % 1000:03}"
    while number >= 1000:
        number //= 1000
        path = f"x{number % 1000:03}/{path}"
    return path


def tile_path(level: int, number: int, width: int = TILE_WIDTH) -> str:
    """A hash tile's path; `level` counts tiles (0 holds the leaves' hashes), `width` hashes are in it."""
    return f"tile/{level}/{_numbered(number, width)}"


def entries_path(number: int, width: int = TILE_WIDTH) -> str:
    """An entry bundle's path; `width` leaves are in it."""
    return f"tile/entries/{_numbered(number, width)}"


def tile_levels(size: int) -> range:
    """The levels of tiles that a tree of `size` leaves has."""
    return range((max(size, 1).bit_length() - 1) // TILE_HEIGHT + 1)


def tile_widths(level: int, size: int) -> list[int]:
    """How many hashes each tile of `level` has in a tree of `size` leaves: full ones, then perhaps a partial one."""
    full, rest = divmod(size >> TILE_HEIGHT * level, TILE_WIDTH)
    return [TILE_WIDTH] * full + ([rest] if rest else [])


def _numbered(number: int, width: int) -> str:
    if number < 0 or not 0 < width <= TILE_WIDTH:
        raise ValueError(f"no tile has number {number} and width {width}")
    return number_path(number) + ("" if width == TILE_WIDTH else f".p/{width}")
