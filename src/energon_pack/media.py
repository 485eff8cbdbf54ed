# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Image bytes to their size, from the header alone: no decoder is opened, no pixel allocated.

Pillow's own format classes read the header, so a file that it refuses is refused here too. WebP is
the exception: Pillow makes a decoder with a full canvas just to learn the size, so its 30 header
bytes are read here. About 20 to 40 microseconds an image.
"""

import struct
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Literal, NamedTuple

from PIL import (
    BmpImagePlugin,
    ExifTags,
    GifImagePlugin,
    Image,
    ImageFile,
    JpegImagePlugin,
    PngImagePlugin,
    TiffImagePlugin,
)

from energon_pack.refusal import SampleError

_TRANSPOSED = range(5, 9)
"""EXIF orientations that swap height and width."""

_READERS: tuple[tuple[str, tuple[bytes, ...], Callable[[BytesIO], ImageFile.ImageFile]], ...] = (
    ("JPEG", (b"\xff\xd8\xff",), JpegImagePlugin.JpegImageFile),
    ("PNG", (b"\x89PNG\r\n\x1a\n",), PngImagePlugin.PngImageFile),
    ("GIF", (b"GIF87a", b"GIF89a"), GifImagePlugin.GifImageFile),
    ("TIFF", (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"), TiffImagePlugin.TiffImageFile),
    ("BMP", (b"BM",), BmpImagePlugin.BmpImageFile),
)


class ImageSize(NamedTuple):
    """Pixels of the first picture in a file, and whether there are more."""

    height: int
    width: int
    animated: bool = False


def image_size(
    data: bytes, *, exif: Literal["ignore", "apply"] = "ignore", max_pixels: int | None = None
) -> ImageSize:
    """Read the size of an encoded image, turned as its EXIF says where ``exif`` is ``apply``.

    Raises ``SampleError``: ``bad_image`` when there is no header that can be read, ``too_large``
    above ``max_pixels``.
    """
    size = _read(data, apply_exif=exif == "apply")
    if size.height < 1 or size.width < 1:
        raise SampleError("bad_image", f"the image is {size.width}x{size.height} pixels")
    check_pixels("image", size.height, size.width, max_pixels)
    return size


def check_pixels(kind: str, height: int, width: int, max_pixels: int | None) -> None:
    """Raise ``SampleError`` (``too_large``) for more than ``max_pixels`` pixels in a frame."""
    if max_pixels is not None and height * width > max_pixels:
        message = f"the {kind} is {width}x{height}, above max_source_pixels {max_pixels}"
        raise SampleError("too_large", message)


def is_image(data: bytes) -> bool:
    """Tell by its first bytes whether ``data`` is an image of a format that is read here."""
    return _is_webp(data) or any(data.startswith(magic) for _, magic, _ in _READERS)


def _read(data: bytes, *, apply_exif: bool) -> ImageSize:
    if _is_webp(data):
        return _webp_size(data, apply_exif=apply_exif)
    for name, magic, reader in _READERS:
        if data.startswith(magic):
            try:
                return _size_of(reader(BytesIO(data)), data, apply_exif=apply_exif)
            except Exception as error:
                raise _broken_header(name) from error
    raise SampleError("bad_image", "the image is no JPEG, PNG, WebP, TIFF, BMP or GIF file")


def _broken_header(name: str) -> SampleError:
    message = f"the {name} header cannot be read; the file is damaged or cut short"
    return SampleError("bad_image", message)


def _size_of(image: ImageFile.ImageFile, data: bytes, *, apply_exif: bool) -> ImageSize:
    width, height = image.size
    if apply_exif and _orientation(image, data) in _TRANSPOSED:
        width, height = height, width
    return ImageSize(height, width, bool(getattr(image, "is_animated", False)))


def _orientation(image: Image.Image, data: bytes) -> int:
    if image.format == "PNG":
        # getexif() would decode the whole picture to reach a chunk behind the pixels.
        image.info.setdefault("exif", _png_exif(data))
    if image.format == "TIFF":
        return 1  # Pillow turns TIFF files itself and reports the turned size
    return int(image.getexif().get(ExifTags.Base.Orientation, 1))


def _png_exif(data: bytes) -> bytes:
    at = 8
    while at + 8 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        if kind == b"eXIf":
            return b"Exif\0\0" + data[at + 8 : at + 8 + length]
        at += length + 12
    return b""


def _is_webp(data: bytes) -> bool:
    return data[:4] == b"RIFF" and data[8:12] == b"WEBP"


def _webp_size(data: bytes, *, apply_exif: bool) -> ImageSize:
    chunks = dict(reversed(list(_webp_chunks(data))))  # of two of a kind the first counts
    try:
        if b"VP8X" in chunks:
            head = chunks[b"VP8X"]
            width = int.from_bytes(head[4:7], "little") + 1
            height = int.from_bytes(head[7:10], "little") + 1
            animated = bool(head[0] & 0x02)
        elif b"VP8L" in chunks:
            (bits,) = struct.unpack_from("<I", chunks[b"VP8L"], 1)
            width, height, animated = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1, False
        else:
            width, height = struct.unpack_from("<HH", chunks[b"VP8 "], 6)
            width, height, animated = width & 0x3FFF, height & 0x3FFF, False
    except (KeyError, IndexError, struct.error):
        raise _broken_header("WebP") from None
    if apply_exif and _webp_orientation(chunks) in _TRANSPOSED:
        width, height = height, width
    return ImageSize(height, width, animated)


def _webp_chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 12
    while at + 8 <= len(data):
        kind, length = struct.unpack_from("<4sI", data, at)
        # Of pixel data the first bytes are enough.
        kept = length if kind in (b"EXIF", b"XMP ") else min(length, 16)
        yield kind, data[at + 8 : at + 8 + kept]
        at += 8 + length + length % 2


def _webp_orientation(chunks: dict[bytes, bytes]) -> int:
    holder = Image.Image()
    holder.info = {"exif": chunks.get(b"EXIF", b""), "xmp": chunks.get(b"XMP ", b"")}
    return int(holder.getexif().get(ExifTags.Base.Orientation, 1))
