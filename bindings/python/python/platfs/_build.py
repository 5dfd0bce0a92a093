"""Images of trees."""

from __future__ import annotations

import os
import uuid as uuids
from dataclasses import dataclass
from typing import Callable, Literal, Optional, Sequence, Union

from . import _native


@dataclass(frozen=True)
class Progress:
    """How far a build has come."""

    stage: Literal["reading", "planning", "names", "data", "finishing", "working"]
    files: int
    total_files: Optional[int]
    bytes: int
    total_bytes: Optional[int]


@dataclass(frozen=True)
class Built:
    """What was built."""

    #: The size of the image.
    bytes: int
    #: Regular files.
    files: int
    directories: int
    free_blocks: int
    block_size: int


def build(
    source: Union[str, "os.PathLike[str]"],
    out: Union[str, "os.PathLike[str]"],
    *,
    type: Literal["ext2", "ext3", "ext4"] = "ext4",
    size: Union[int, Literal["auto", "min"]] = "auto",
    label: str = "",
    overwrite: bool = False,
    exclude: Sequence[str] = (),
    block_size: Optional[int] = None,
    inodes: Optional[int] = None,
    reserved_percent: Optional[float] = None,
    uuid: Union[uuids.UUID, str, None] = None,
    time: Optional[int] = None,
    owner: Optional[tuple[int, int]] = None,
    prefix: Union[str, "os.PathLike[str]", None] = None,
    keep_times: bool = False,
    sync: bool = False,
    platform: Optional[str] = None,
    image: Optional[str] = None,
    progress: Optional[Callable[[Progress], object]] = None,
) -> Built:
    """Makes an image of a directory, a tar archive, an OCI layout or a docker-save archive.

    ``out`` is a new file, which appears whole or not at all, or a part of a disk that is there (``disk.img@part1``).
    Equal sources and options give equal images: what ``uuid`` and ``time`` don't say is derived from the contents.

    - ``size``: bytes, ``"auto"`` (the contents and a tenth more) or ``"min"``.
    - ``overwrite``: the image takes the place of a file that exists.
    - ``exclude``: patterns of names, or of paths if they have a slash, that are left out.
    - ``time``: seconds since 1970: the time of the volume, and the latest of its files.
    - ``owner``: user and group of everything. ``prefix``: a directory of the image that everything goes below.
    - ``keep_times``: keeps times of access and change, too. ``sync``: waits until the image is stable.
    - ``platform``, ``image``: which image of a container archive (``"linux/amd64"``, ``"debian:12"``).
    - ``progress``: is called on the way. What it raises ends the build, and is raised from here.
    """
    if isinstance(size, str) and size not in ("auto", "min"):
        raise ValueError(f"size {size!r}: a number of bytes, 'auto' or 'min'")
    if not isinstance(size, str) and size <= 0:
        raise ValueError("size: at least one byte")
    wanted = {
        "type": type,
        "size": {"auto": 0, "min": None}[size] if isinstance(size, str) else size,
        "label": list(label.encode()),
        "overwrite": overwrite,
        "exclude": list(exclude),
        "block_size": block_size,
        "inodes": inodes,
        "reserved": reserved_percent,
        "uuid": None if uuid is None else list(uuids.UUID(str(uuid)).bytes),
        "time": time,
        "owner": owner,
        "prefix": None if prefix is None else os.fspath(prefix),
        "keep_times": keep_times,
        "sync": sync,
        "platform": platform,
        "image": image,
    }
    show = progress
    call = None if show is None else lambda *now: show(Progress(*now))
    return Built(*_native.build(os.fspath(source), os.fspath(out), wanted, call))
