"""PNG, JPEG, TIFF and WebP by Pillow: any kind of pixel in, grey or blue-green-red out.

A picture keeps its pixels up to the page limits and is averaged down to them above. It is converted in bands, so that a
large one needs its decoded form and no second copy. Nothing is done about gamma or colour profiles.
"""

import warnings
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, MpoImagePlugin, PngImagePlugin, TiffImagePlugin, WebPImagePlugin, __version__

from affidavit.services.preprocess.protocol import MAX_GEOMETRY, Drawn, WorkerLimits
from affidavit.services.preprocess.worker.area import Area
from affidavit.services.preprocess.worker.levels import DEEP_MODES, Levels, levels_of
from affidavit.services.preprocess.worker.refusal import Refusal
from affidavit.services.preprocess.worker.resolution import fit

VERSION = __version__

_FORMATS = ("PNG", "JPEG", "TIFF", "WEBP")
_MEDIA_TYPES = {
    "PNG": "image/png",
    "JPEG": "image/jpeg",
    "MPO": "image/jpeg",  # a JPEG with more pictures behind the first, as phones and stereo cameras write
    "TIFF": "image/tiff",
    "WEBP": "image/webp",
}
# Of the memory limit, what a decoded picture may take; the rest is for the decoder and one band.
_DECODED_SHARE = 0.8
_BAND_PIXELS = 1 << 20
# Resolutions that a file may claim and be believed, dots per inch.
_CREDIBLE_DPI = (50.0, 1200.0)
_ORIENTATION_TAG = 0x0112

# What Pillow raises on damaged files.
_DAMAGE = (
    OSError,
    SyntaxError,
    ValueError,
    TypeError,
    EOFError,
    LookupError,
    ArithmeticError,
    RuntimeError,
    AttributeError,
    AssertionError,
)


def initialise() -> None:
    """Once a process, before it is confined: Pillow imports plugins when they are first needed."""
    Image.preinit()
    for plugin in (MpoImagePlugin, TiffImagePlugin, WebPImagePlugin):
        assert plugin
    Image.MAX_IMAGE_PIXELS = None  # checked here, by the limits given
    PngImagePlugin.MAX_TEXT_MEMORY = 8 << 20
    warnings.simplefilter("ignore")


class PictureDocument:
    """An open picture file; a TIFF may have several pages, the others have one."""

    def __init__(self, file: IO[bytes], limits: WorkerLimits) -> None:
        """
        Raises:
            Refusal: DAMAGED_DOCUMENT, IMAGE_TOO_LARGE.
        """
        self._limits = limits
        self._decoded = -1
        try:
            self._image: Any = Image.open(file, formats=_FORMATS)
            self.media_type = _MEDIA_TYPES[self._image.format]
            self.page_count = int(self._image.n_frames) if self.media_type == "image/tiff" else 1
            if self.page_count == 1:
                self._decode(0)  # so that a damaged file is refused, and not answered with a damaged page
        except MemoryError:
            raise Refusal("IMAGE_TOO_LARGE") from None
        except _DAMAGE:
            raise Refusal("DAMAGED_DOCUMENT") from None

    def draw(self, index: int, area: Area) -> Drawn:
        """Put a page into the area.

        Raises:
            Refusal: PAGE_BROKEN, IMAGE_TOO_LARGE.
        """
        try:
            self._decode(index)
            return self._convert(area)
        except MemoryError:
            raise Refusal("IMAGE_TOO_LARGE") from None
        except _DAMAGE:
            raise Refusal("PAGE_BROKEN") from None

    def close(self) -> None:
        self._image.close()

    def _decode(self, index: int) -> None:
        if index == self._decoded:
            return
        image = self._image
        self._decoded = -1
        if self.media_type == "image/tiff":
            image.seek(index)
        columns, rows = self._source_size = image.size
        if columns * rows > self._limits.image_pixels:
            raise Refusal("IMAGE_TOO_LARGE")
        # JPEG decodes at 1/2, 1/4 or 1/8 when that still is enough.
        image.draft(None, fit(columns, rows, self._limits.page_pixels, self._limits.page_side))
        if _decoded_bytes(image, columns * rows) > self._limits.memory_bytes * _DECODED_SHARE:
            raise Refusal("IMAGE_TOO_LARGE")
        self._orientation = _orientation(image)
        image.load()
        self._decoded = index

    def _convert(self, area: Area) -> Drawn:
        image = self._image
        columns, rows = image.size
        width, height = fit(columns, rows, self._limits.page_pixels, self._limits.page_side)
        grey = image.mode in DEEP_MODES or (image.mode in ("1", "L", "LAB") and not image.has_transparency_data)
        levels = levels_of(image) if image.mode in DEEP_MODES else None
        page = area.grey(width, height) if grey else area.colour(width, height)
        turned = self.media_type != "image/tiff" and self._orientation != 1  # Pillow turns TIFF itself
        target = np.empty_like(page) if turned else page
        step = max(1, _BAND_PIXELS * height // (columns * rows))
        for first in range(0, height, step):
            last = min(first + step, height)
            top, bottom = first * rows / height, last * rows / height
            begin, end = int(top), min(rows, -int(-bottom // 1))
            band = _flat(image.crop((0, begin, columns, end)), levels)
            if (width, height) != (columns, rows):
                box = (0, top - begin, columns, bottom - begin)
                band = band.resize((width, last - first), Image.Resampling.BOX, box)
            data = band.tobytes() if grey else band.tobytes("raw", "BGR")
            target[first:last] = np.frombuffer(data, np.uint8).reshape(target[first:last].shape)
        if turned:
            upright = _upright(target, self._orientation)
            height, width = upright.shape[:2]
            (area.grey(width, height) if grey else area.colour(width, height))[:] = upright
        channels = 1 if grey or area.reduce_to_grey(width, height) else 3
        return Drawn(width, height, channels, *self._geometry())

    def _geometry(self) -> tuple[int, int, int]:
        """Width, height and pixel scale of the page as displayed."""
        columns, rows = self._source_size
        across, down = self._image.info.get("dpi", (0, 0))[:2]
        if self.media_type == "image/jpeg" and (across, down) == (72, 72):
            across = down = 0  # Pillow's word for "says nothing", and that of many cameras
        if self._orientation >= 5:  # a quarter turn
            across, down = down, across
            if self.media_type != "image/tiff":
                columns, rows = rows, columns
        least, most = _CREDIBLE_DPI
        if least <= across <= most and least <= down <= most:
            return _bounded(columns * 7200 / across), _bounded(rows * 7200 / down), 0
        return _bounded(columns * 100), _bounded(rows * 100), 100


def _decoded_bytes(image: Any, source_pixels: int) -> int:
    """What decoding will take: one byte a grey pixel, four of every other kind; a progressive JPEG keeps all its
    coefficients, two bytes each, also when it is decoded smaller."""
    each = 1 if image.mode in ("1", "L", "P") else 2 if image.mode.startswith("I;16") else 4
    coefficients = 0
    if image.info.get("progressive"):
        samples = [across * down for _, across, down, _ in image.layer]
        coefficients = 2 * source_pixels * sum(samples) // max(1, *samples)
    return image.width * image.height * each + coefficients


def _orientation(image: Any) -> int:
    """EXIF orientation, 1 to 8; 1 is upright."""
    try:
        value = image.getexif().get(_ORIENTATION_TAG, 1)
    except _DAMAGE:
        return 1  # a damaged EXIF block does not make the picture unreadable
    return value if value in range(1, 9) else 1


def _upright(page: NDArray[np.uint8], orientation: int) -> NDArray[np.uint8]:
    """The page with its EXIF orientation undone (EXIF 2.32, 4.6.4)."""
    if orientation in (2, 7):
        page = page[:, ::-1]
    if orientation in (4, 5):
        page = page[::-1]
    return np.rot90(page, {3: 2, 5: -1, 6: -1, 7: -1, 8: 1}.get(orientation, 0))


def _flat(band: Any, levels: Levels | None) -> Any:
    """A band as grey ("L") or colour ("RGB"), laid on white where it is transparent."""
    if levels is not None:
        return Image.fromarray(levels.apply(np.asarray(band)))
    if band.has_transparency_data:
        band = band.convert("RGBA")
        paper = Image.new("RGB", band.size, "white")
        paper.paste(band, mask=band.getchannel("A"))
        return paper
    match band.mode:
        case "L" | "RGB":
            return band
        case "1":
            return band.convert("L")
        case "LAB":
            return band.getchannel("L")
        case _:
            return band.convert("RGB")


def _bounded(value: float) -> int:
    return min(max(1, round(value)), MAX_GEOMETRY)
