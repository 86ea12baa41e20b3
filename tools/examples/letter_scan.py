"""Make examples/letter-scan.pdf: a three-page letter as a scanner would give it, pictures only, no text layer.

usage: python -m affidavit.tools.examples.letter_scan OUT.pdf

Paper tone, a slight skew, blur, grain and JPEG at 150 dpi. Fixed seed: the same Pillow makes the same bytes.
"""

import io
import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

DPI = 150
WIDTH, HEIGHT = 1240, 1754  # A4 at 150 dpi
MARGIN = 130
SKEW_DEGREES = (0.35, -0.25, 0.15)

PAGES: list[list[str]] = [
    [
        "# Harbour Cooperative Bank",
        "14 Quay Street, Port Ellis",
        "",
        "30 November 2026",
        "",
        "Ms Amara Lindqvist",
        "7 Orchard Lane",
        "Port Ellis",
        "",
        "# Re: Account review 2026-1187",
        "",
        "Dear Ms Lindqvist,",
        "",
        "Thank you for sending the documents that we asked for on",
        "12 October. We have now completed the review of your",
        "business account and are pleased to confirm that no further",
        "information is needed.",
        "",
        "During the review an automated system read the scanned",
        "papers and proposed a decision. You are entitled to know how",
        "that proposal was made, and to have it checked by a person.",
        "The pages that follow list what was read, by which model,",
        "and where the evidence is kept.",
        "",
        "Every page that the system read has a record of its own in",
        "a log that nobody can change without being noticed.",
    ],
    [
        "# Documents received",
        "",
        "| No.|Document|Pages|Received",
        "| 1|Certificate of registration|2|12 Oct 2026",
        "| 2|Annual accounts 2025|18|14 Oct 2026",
        "| 3|Proof of address|1|14 Oct 2026",
        "| 4|Signed mandate|3|20 Oct 2026",
        "",
        "# Amounts confirmed",
        "",
        "| Item|Period|Amount",
        "| Turnover|2025|EUR 418,250.00",
        "| Staff costs|2025|EUR 171,904.35",
        "| Closing balance|31 Dec 2025|EUR 22,618.90",
        "",
        "The amounts above were read from document 2 and agree with",
        "the figures that you entered in the form. Where a figure was",
        "hard to read, the system said so and a colleague looked at",
        "the paper. This was the case for one line on page 11.",
    ],
    [
        "# Your rights",
        "",
        "You may ask us at any time which program read your papers,",
        "which version it had, and on which machine it ran. We can",
        "prove our answer with the receipt that belongs to each page.",
        "",
        "You may also ask for the decision to be made again by a",
        "person who was not involved in the first one. Please write",
        "to reviews@harbour-coop.example or call 0555 0147 between",
        "nine and five o'clock, Monday to Friday.",
        "",
        "With kind regards,",
        "",
        "",
        "Tomas Okafor",
        "Head of Customer Reviews",
        "",
        "Enclosures: 2",
    ],
]


def draw_page(lines: list[str]) -> Image.Image:
    """One clean page in grey."""
    page = Image.new("L", (WIDTH, HEIGHT), 246)
    draw = ImageDraw.Draw(page)
    body, heading = ImageFont.load_default(27), ImageFont.load_default(36)
    y = MARGIN
    for line in lines:
        if line.startswith("|"):
            cells = [cell.strip() for cell in line[1:].split("|")]
            stops = (0, 90, 620, 740) if len(cells) == 4 else (0, 380, 640)
            for stop, cell in zip(stops, cells, strict=True):
                draw.text((MARGIN + stop, y), cell, font=body, fill=38)
            y += 48
        else:
            font = heading if line.startswith("# ") else body
            draw.text((MARGIN, y), line.removeprefix("# "), font=font, fill=30)
            y += 54 if line.startswith("# ") else 44
    return page


def scan(page: Image.Image, skew: float, random: np.random.Generator) -> Image.Image:
    """The page as a scanner sees it: turned a little, a shadow at one edge, soft, grainy."""
    turned = page.rotate(skew, resample=Image.Resampling.BICUBIC, fillcolor=246)
    pixels = np.asarray(turned.filter(ImageFilter.GaussianBlur(0.7)), np.float32)
    shadow = 14 * np.exp(-np.arange(WIDTH, dtype=np.float32) / 40)
    pixels = pixels - shadow[None, :] + random.normal(0, 4, pixels.shape).astype(np.float32)
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def make() -> bytes:
    """The PDF's bytes."""
    random = np.random.default_rng(20261130)
    first, *rest = [scan(draw_page(lines), skew, random) for lines, skew in zip(PAGES, SKEW_DEGREES, strict=True)]
    buffer = io.BytesIO()
    # No dates and no producer in it: the same bytes whenever it is made.
    first.save(
        buffer, "PDF", save_all=True, append_images=rest, resolution=DPI, quality=70, creationDate=None, modDate=None
    )
    return buffer.getvalue()


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(make())
