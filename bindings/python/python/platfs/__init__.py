"""Read, change, build, check and mount ext2, ext3 and ext4 images.

>>> import platfs
>>> with platfs.Image("disk.img") as image:
...     print((image / "etc/os-release").read_text())
...     for entry in (image / "etc").iterdir():
...         print(entry, entry.stat().st_size)
"""

from ._acl import AclEntry, Tag
from ._build import Built, Progress, build
from ._check import Issue, Report, Severity, check
from ._figures import Extent, Fragmentation, FreeBin, FreeSpace
from ._file import FileIO
from ._image import DirEntry, Image
from ._mount import Done, Live, Mount, Quota, QuotaRecord, Sizes, mount
from ._native import NotAnImage, __version__
from ._partitions import Partition, partitions
from ._path import Path
from ._push import Pushed, push
from ._source import Source

__all__ = [
    "AclEntry",
    "Built",
    "DirEntry",
    "Done",
    "Extent",
    "FileIO",
    "Fragmentation",
    "FreeBin",
    "FreeSpace",
    "Image",
    "Issue",
    "Live",
    "Mount",
    "NotAnImage",
    "Partition",
    "Path",
    "Progress",
    "Pushed",
    "Quota",
    "QuotaRecord",
    "Report",
    "Severity",
    "Sizes",
    "Source",
    "Tag",
    "__version__",
    "build",
    "check",
    "mount",
    "partitions",
    "push",
]
