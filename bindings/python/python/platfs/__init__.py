"""Read, change, build and check ext2, ext3 and ext4 images, without root and without a mount.

>>> import platfs
>>> with platfs.Image("disk.img") as image:
...     print((image / "etc/os-release").read_text())
...     for entry in (image / "etc").iterdir():
...         print(entry, entry.stat().st_size)
"""

from ._check import Issue, Report, check
from ._build import Built, Progress, build
from ._file import FileIO
from ._image import DirEntry, Extent, Image
from ._native import __version__
from ._path import Path

__all__ = [
    "Built",
    "DirEntry",
    "Extent",
    "FileIO",
    "Image",
    "Issue",
    "Path",
    "Progress",
    "Report",
    "__version__",
    "build",
    "check",
]
