"""The memory file that a page is drawn into, and the one step that every page goes through: is it grey?"""

import mmap

import numpy as np
from numpy.typing import NDArray

_BLOCK = 3 * 65_536


class Area:
    """Memory shared with the service, large enough for the largest page in three bytes a pixel."""

    def __init__(self, descriptor: int, size: int) -> None:
        self._bytes = np.frombuffer(mmap.mmap(descriptor, size), np.uint8)

    @property
    def address(self) -> int:
        return self._bytes.ctypes.data

    def colour(self, width: int, height: int) -> NDArray[np.uint8]:
        """A page to write, shape (height, width, 3): blue, green, red."""
        return self._bytes[: width * height * 3].reshape(height, width, 3)

    def grey(self, width: int, height: int) -> NDArray[np.uint8]:
        """A page to write, shape (height, width)."""
        return self._bytes[: width * height].reshape(height, width)

    def reduce_to_grey(self, width: int, height: int) -> bool:
        """When blue, green and red are equal everywhere in the colour page drawn here, leave one byte a pixel."""
        page = self._bytes[: width * height * 3]
        for start in range(0, len(page), _BLOCK):
            # Neighbouring bytes are compared; every third pair belongs to two pixels. (Contiguous: 1.4 ms for a page
            # of 3.7 million pixels, 3.8 ms over the three strided channels.)
            differ = page[start : start + _BLOCK]
            differ = differ[1:] != differ[:-1]
            differ[2::3] = False
            if differ.any():
                return False
        self._bytes[: width * height] = page[1::3].copy()
        return True
