"""What images are named by: paths, addresses of object stores, file objects."""

from __future__ import annotations

import os
from typing import Any, BinaryIO, Optional, Protocol, Union


class Seekable(Protocol):
    """A binary file object that can seek; to change an image it needs ``write`` and ``flush``, too."""

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Goes to a place, and returns it."""
        ...

    def read(self, size: int = -1, /) -> bytes:
        """At most ``size`` bytes."""
        ...


#: An image: the path of a file or a block device, or of a part of it (``disk.img@part1``, ``disk.img@part:root``,
#: ``disk.img@1M``; a file that really has such a name wins), the address of a volume in an object store
#: (``file:///srv/store#NAME``), or a binary file object that can seek.
Source = Union[str, "os.PathLike[str]", bytes, BinaryIO, Seekable]

#: Bytes of a cache at most, if nothing else is said.
CACHE_SIZE = 8 << 30


def named(
    source: Source,
    offset: int = 0,
    length: Optional[int] = None,
    cache: Optional["os.PathLike[str] | str"] = None,
    cache_size: int = CACHE_SIZE,
    take_over: bool = False,
) -> dict[str, Any]:
    """The same for the native half."""
    if offset < 0 or (length is not None and length < 0):
        raise ValueError("offset and length are not negative")
    name, thing = None, None
    if hasattr(source, "seek") and hasattr(source, "read"):
        thing = source
    else:
        name = os.fsdecode(source)
    return {
        "name": name,
        "object": thing,
        "offset": offset,
        "length": length,
        "cache": None if cache is None else (os.fspath(cache), cache_size),
        "take_over": take_over,
    }
