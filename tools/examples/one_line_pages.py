"""A PDF of many small pages, each a picture of one line of its own: what memory over long documents is measured with."""

import io

from PIL import Image, ImageDraw, ImageFont

DPI = 150
WIDTH, HEIGHT = 900, 150  # 6 x 1 inch


def one_line_pages(count: int) -> bytes:
    """`count` pages (1 or more); page n reads "Line n of many, no two pages alike"."""
    font = ImageFont.load_default(36)
    pages: list[Image.Image] = []
    for number in range(1, count + 1):
        page = Image.new("L", (WIDTH, HEIGHT), 255)
        ImageDraw.Draw(page).text((40, 50), f"Line {number} of many, no two pages alike", 20, font)
        pages.append(page)
    out = io.BytesIO()
    pages[0].save(out, "PDF", save_all=True, append_images=pages[1:], resolution=DPI)
    return out.getvalue()
