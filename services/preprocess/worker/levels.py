"""Grey pictures of more than eight bits: which value is black and which is white."""

from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

DEEP_MODES = ("I;16", "I;16B", "I;16L", "I;16N", "I", "F")

_BITS_TAG, _PHOTOMETRIC_TAG, _WHITE_IS_ZERO = 258, 262, 0
_BAND_ROWS = 256


class Levels(NamedTuple):
    black: float
    white: float

    def apply(self, values: NDArray[Any]) -> NDArray[np.uint8]:
        """The values as bytes, 0 black to 255 white; what is no number is white."""
        span = self.white - self.black
        scaled = (values.astype(np.float32) - self.black) * (255 / span if span else 0) + 0.5
        return np.nan_to_num(np.clip(scaled, 0, 255), nan=255).astype(np.uint8)


def levels_of(image: Any) -> Levels:
    """Black and white of a decoded grey picture of mode "I;16", "I" or "F".

    Sixteen-bit pictures use the range that their bit depth declares (a clipped or stretched scan would lose strokes).
    Signed and floating-point ones declare none: 0 to 1, 0 to 255 or 0 to 65535 when the values fit, else what there is.
    """
    tags = cast("dict[int, Any]", getattr(image, "tag_v2", {}))
    if image.mode.startswith("I;16"):
        bits = tags.get(_BITS_TAG, (16,))
        levels = Levels(0, 2.0 ** min(max(int(bits[0]), 1), 16) - 1)
    else:
        levels = _by_values(image)
    return Levels(levels.white, levels.black) if tags.get(_PHOTOMETRIC_TAG) == _WHITE_IS_ZERO else levels


def _by_values(image: Any) -> Levels:
    least, most = np.inf, -np.inf
    for top in range(0, image.height, _BAND_ROWS):
        band = np.asarray(image.crop((0, top, image.width, min(top + _BAND_ROWS, image.height))))
        finite = band[np.isfinite(band)]
        if finite.size:
            least, most = min(least, float(finite.min())), max(most, float(finite.max()))
    if least >= 0:
        for white in (1.0, 255.0, 65535.0) if image.mode == "F" else (255.0, 65535.0):
            if most <= white:
                return Levels(0, white)
    return Levels(least, most)
