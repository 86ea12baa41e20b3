"""PDF pages by PDFium, through its C interface.

Pixels depend on PDFium's build, on these flags, and on nothing of the host: no system fonts (the sandbox could not open
them anyway; PDFium's own substitutes are used), no LCD anti-aliasing, the AGG renderer, no clock.
"""

import ctypes
import math
import mmap
from typing import Any

import numpy as np
import pypdfium2_raw as pdfium
from pypdfium2_raw.version import PDFIUM_INFO

from affidavit.services.preprocess.protocol import MAX_GEOMETRY, Drawn, WorkerLimits
from affidavit.services.preprocess.worker.area import Area
from affidavit.services.preprocess.worker.refusal import Refusal
from affidavit.services.preprocess.worker.resolution import fit, page_dpi

VERSION = str(PDFIUM_INFO).partition("@")[0]

_WHITE = 0xFFFFFFFF
_FLAGS = pdfium.FPDF_ANNOT
# A picture that covers so much of the page is the page; looked for among the first objects only.
_SCAN_COVERAGE = 0.85
_SCAN_OBJECTS = 64

_LOAD_ERRORS = {
    # PDFium cannot open a page tree without pages and reports no error.
    pdfium.FPDF_ERR_SUCCESS: "NO_PAGES",
    pdfium.FPDF_ERR_SECURITY: "UNSUPPORTED_FORMAT",
}


def initialise() -> None:
    """Once a process."""
    no_fonts = (ctypes.POINTER(ctypes.c_char) * 1)()
    config = pdfium.FPDF_LIBRARY_CONFIG(
        version=4, m_pUserFontPaths=no_fonts, m_RendererType=pdfium.FPDF_RENDERERTYPE_AGG
    )
    pdfium.FPDF_InitLibraryWithConfig(config)
    pdfium.FPDF_SetSandBoxPolicy(pdfium.FPDF_POLICY_MACHINETIME_ACCESS, False)


class PdfDocument:
    """An open PDF."""

    media_type = "application/pdf"

    def __init__(self, data: mmap.mmap, passwords: tuple[bytes, ...], limits: WorkerLimits) -> None:
        """
        Raises:
            Refusal: PASSWORD_REQUIRED, PASSWORD_WRONG, NO_PAGES, DAMAGED_DOCUMENT, UNSUPPORTED_FORMAT.
        """
        self._limits = limits
        self._data = np.frombuffer(data, np.uint8)  # PDFium reads from here until `close`
        self._document = _load(self._data, passwords)
        self._form: Any = None
        if pdfium.FPDF_GetFormType(self._document) != pdfium.FORMTYPE_NONE:
            self._form_info = pdfium.FPDF_FORMFILLINFO(version=2)
            self._form = pdfium.FPDFDOC_InitFormFillEnvironment(self._document, self._form_info)
        self.page_count: int = pdfium.FPDF_GetPageCount(self._document)
        if self.page_count < 1:
            self.close()
            raise Refusal("NO_PAGES")

    def draw(self, index: int, area: Area) -> Drawn:
        """Draw a page into the area.

        Raises:
            Refusal: PAGE_BROKEN.
        """
        page = pdfium.FPDF_LoadPage(self._document, index)
        if not page:
            raise Refusal("PAGE_BROKEN")
        if self._form:
            pdfium.FORM_OnAfterLoadPage(page, self._form)
        try:
            return self._draw(page, area)
        finally:
            if self._form:
                pdfium.FORM_OnBeforeClosePage(page, self._form)
            pdfium.FPDF_ClosePage(page)

    def close(self) -> None:
        if self._form:
            pdfium.FPDFDOC_ExitFormFillEnvironment(self._form)
            self._form = None
        pdfium.FPDF_CloseDocument(self._document)

    def _draw(self, page: Any, area: Area) -> Drawn:
        # As displayed: CropBox and rotation are applied by PDFium, here and when drawing.
        width_pt, height_pt = pdfium.FPDF_GetPageWidthF(page), pdfium.FPDF_GetPageHeightF(page)
        if not (math.isfinite(width_pt) and math.isfinite(height_pt) and width_pt > 0 and height_pt > 0):
            raise Refusal("PAGE_BROKEN")
        scale = page_dpi(width_pt, height_pt, _scan_dpi(page, width_pt, height_pt)) / 72
        width, height = fit(width_pt * scale, height_pt * scale, self._limits.page_pixels, self._limits.page_side)
        bitmap = pdfium.FPDFBitmap_CreateEx(width, height, pdfium.FPDFBitmap_BGR, area.address, width * 3)
        if not bitmap:
            raise Refusal("PAGE_BROKEN")
        try:
            pdfium.FPDFBitmap_FillRect(bitmap, 0, 0, width, height, _WHITE)
            pdfium.FPDF_RenderPageBitmap(bitmap, page, 0, 0, width, height, 0, _FLAGS)
            if self._form:
                pdfium.FPDF_FFLDraw(self._form, bitmap, page, 0, 0, width, height, 0, _FLAGS)
        finally:
            pdfium.FPDFBitmap_Destroy(bitmap)
        channels = 1 if area.reduce_to_grey(width, height) else 3
        return Drawn(width, height, channels, _hundredths(width_pt), _hundredths(height_pt), 0)


def _load(data: np.ndarray[Any, Any], passwords: tuple[bytes, ...]) -> Any:
    error = pdfium.FPDF_ERR_PASSWORD
    for password in passwords or (None,):
        document = pdfium.FPDF_LoadMemDocument64(data.ctypes.data, len(data), password)
        if document:
            return document
        error = pdfium.FPDF_GetLastError()
        if error != pdfium.FPDF_ERR_PASSWORD:
            raise Refusal(_LOAD_ERRORS.get(error, "DAMAGED_DOCUMENT"))
    raise Refusal("PASSWORD_WRONG" if passwords else "PASSWORD_REQUIRED")


def _scan_dpi(page: Any, width_pt: float, height_pt: float) -> float:
    """Resolution of the finest picture that covers the page; 0 when none does."""
    finest = 0.0
    left, bottom, right, top = (ctypes.c_float() for _ in range(4))
    columns, rows = ctypes.c_uint(), ctypes.c_uint()
    for number in range(min(pdfium.FPDFPage_CountObjects(page), _SCAN_OBJECTS)):
        item = pdfium.FPDFPage_GetObject(page, number)
        if pdfium.FPDFPageObj_GetType(item) != pdfium.FPDF_PAGEOBJ_IMAGE:
            continue
        if not pdfium.FPDFPageObj_GetBounds(item, left, bottom, right, top):
            continue
        across, down = right.value - left.value, top.value - bottom.value
        if not across * down >= _SCAN_COVERAGE * width_pt * height_pt:
            continue
        if not pdfium.FPDFImageObj_GetImagePixelSize(item, columns, rows):
            continue
        # Sides are compared by length: the picture may lie turned on the page.
        long = max(columns.value, rows.value) / max(across, down)
        short = min(columns.value, rows.value) / min(across, down)
        finest = max(finest, 72 * long, 72 * short)
    return finest


def _hundredths(points: float) -> int:
    """Hundredths of a point, within the geometry's range: a page of more than 7 km is described as one of 7 km."""
    return min(max(1, round(points * 100)), MAX_GEOMETRY)
