"""A plugin of ocrmypdf: make the paper of a page white. ocrmypdf has the option, but no code for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ocrmypdf import hookimpl
from PIL import Image, ImageChops, ImageFilter

if TYPE_CHECKING:
    from ocrmypdf import PageContext

SCALE = 8  # the paper is estimated on an image smaller by this factor
LETTERS = 9  # darker marks narrower than this (on the small image) are not paper
DARKEST_PAPER = 110


@hookimpl
def filter_page_image(page: PageContext, image_filename: Path) -> Path:
    """Replace the page image by one on white paper."""
    with Image.open(image_filename) as image:
        save_options: dict[str, Any] = {
            name: image.info[name] for name in ("dpi", "icc_profile") if name in image.info
        }
        kind, whitened_page = image.format, whitened(image)
    if kind == "JPEG":
        save_options["quality"] = 90
    whitened_page.save(image_filename, kind, **save_options)
    return image_filename


def whitened(image: Image.Image) -> Image.Image:
    """The image, lightened everywhere by how much its paper is darker than white; dark areas stay."""
    if image.mode == "1":
        return image.copy()
    image = image.convert("L" if image.mode in ("L", "LA") else "RGB")
    small = image.resize([max(1, side // SCALE) for side in image.size], Image.Resampling.BOX)
    paper = small.filter(ImageFilter.MaxFilter(LETTERS)).filter(ImageFilter.GaussianBlur(LETTERS / 2))
    missing = paper.point(
        [0 if shade < DARKEST_PAPER else 255 - shade for shade in range(256)] * len(paper.getbands())
    )
    return ImageChops.add(image, missing.resize(image.size, Image.Resampling.BILINEAR))
