"""A plugin of ocrmypdf: the paper of a page becomes white. ocrmypdf has the option, and no code for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ocrmypdf import hookimpl
from PIL import Image, ImageChops, ImageFilter

if TYPE_CHECKING:
    from ocrmypdf import PageContext

SCALE = 8  # the paper is looked at from so far away
LETTERS = 9  # what is darker and narrower than this is on it, seen from there
DARKEST_PAPER = 110


@hookimpl
def filter_page_image(page: PageContext, image_filename: Path) -> Path:
    """The page as it is shown, on white."""
    with Image.open(image_filename) as image:
        kept: dict[str, Any] = {
            name: image.info[name] for name in ("dpi", "icc_profile") if name in image.info
        }
        kind, shown = image.format, whitened(image)
    if kind == "JPEG":
        kept["quality"] = 90
    shown.save(image_filename, kind, **kept)
    return image_filename


def whitened(image: Image.Image) -> Image.Image:
    """As much lighter everywhere as the paper there is darker than white; dark areas are no paper."""
    if image.mode == "1":
        return image.copy()
    image = image.convert("L" if image.mode in ("L", "LA") else "RGB")
    small = image.resize([max(1, side // SCALE) for side in image.size], Image.Resampling.BOX)
    paper = small.filter(ImageFilter.MaxFilter(LETTERS)).filter(ImageFilter.GaussianBlur(LETTERS / 2))
    missing = paper.point(
        [0 if shade < DARKEST_PAPER else 255 - shade for shade in range(256)] * len(paper.getbands())
    )
    return ImageChops.add(image, missing.resize(image.size, Image.Resampling.BILINEAR))
