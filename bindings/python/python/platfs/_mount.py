"""Mounts by this process, and work in a mount while it is used."""

from __future__ import annotations

import json
import os
import warnings
import weakref
from dataclasses import dataclass, field
from typing import Any, Literal, Union

from . import _native

#: A path of the host.
HostPath = Union[str, bytes, "os.PathLike[str]"]
#: A kind of quota.
QuotaKind = Literal["user", "group", "project"]


@dataclass(frozen=True)
class Done:
    """Counts of what was done."""

    files: int
    directories: int
    bytes: int
    #: Attributes that the mount does not show, or that only an administrator may set.
    attributes_left_out: int


@dataclass(frozen=True)
class Sizes:
    """Sizes of a volume before and after a change."""

    block_size: int
    blocks_before: int
    blocks: int
    bytes_before: int
    bytes: int
    groups_before: int
    groups: int
    #: Blocks that move.
    blocks_moved: int
    #: Inodes that get other numbers.
    inodes_moved: int


@dataclass(frozen=True)
class QuotaRecord:
    """What an id uses, and its limits; a limit of 0 is none."""

    id: int
    bytes: int
    inodes: int
    soft_bytes: int
    hard_bytes: int
    soft_inodes: int
    hard_inodes: int
    #: Seconds since 1970 when the grace for space ends; 0 if none has begun.
    bytes_until: int
    #: Seconds since 1970 when the grace for inodes ends; 0 if none has begun.
    inodes_until: int


@dataclass(frozen=True)
class Quota:
    """State of a kind of quota."""

    #: The kinds that are counted.
    kinds: list[str]
    #: Limits count.
    enforced: bool
    #: Seconds for which the soft limit of space may be exceeded.
    grace_bytes: int
    #: Seconds for which the soft limit of inodes may be exceeded.
    grace_inodes: int
    records: list[QuotaRecord] = field(repr=False)


class Live:
    """A mount of this or another process, by ``platfs.mount`` or ``plat mount``, to be worked on while it is used.

    Calls have the rights of this process. Paths begin at ``directory``, which is that of the mount or one in it.
    Failures are ``OSError`` with errno and filename; what was done until then stays.
    """

    def __init__(self, directory: HostPath) -> None:
        self.directory = os.path.abspath(os.fsdecode(directory))
        self._live = _native.LiveMount(self.directory)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.directory!r}>"

    def stats(self) -> dict[str, Any]:
        """The counts of the mount, as ``plat stats --json`` shows them."""
        found: dict[str, Any] = json.loads(self._live.stats())
        return found

    def sync(self) -> None:
        """Makes stable all that programs wrote. ``directory`` must be that of the mount."""
        self._live.sync()

    def copy(self, source: HostPath, to: HostPath) -> Done:
        """Copies a file, or a directory with all in it, to a new name, with owners, times and attributes."""
        return Done(*self._live.copy(os.fsdecode(source), os.fsdecode(to)))

    def remove(self, path: HostPath) -> Done:
        """Removes a file, or a directory with all in it."""
        return Done(*self._live.remove(os.fsdecode(path)))

    def snapshot(self, out: HostPath) -> Done:
        """Writes the volume as it is at one moment into a new file of the host."""
        return Done(*self._live.snapshot(os.fsdecode(out)))

    def resize(self, size: int = 0) -> Sizes:
        """Makes the volume larger or smaller, to ``size`` bytes; 0 is all that the image has room for."""
        return _sizes(self._live.resize(size))

    def least_size(self) -> Sizes:
        """The least size that the volume can have, and what it would take. Nothing is changed."""
        return _sizes(self._live.least_size())

    def defragment(self, path: HostPath = "/") -> dict[str, Any]:
        """Brings the pieces of the files below a path together; the report is that of ``plat defrag --json``."""
        report: dict[str, Any] = json.loads(self._live.defragment(os.fsdecode(path)))
        return report

    def trim(self, least: int = 0) -> int:
        """Reports free space to the device, in runs of at least ``least`` bytes; the bytes that were reported."""
        return self._live.trim(least)

    def quota(self, kind: QuotaKind = "user") -> Quota:
        """State, limits and counts of a kind of quota."""
        kinds, enforced, (grace_bytes, grace_inodes), records = self._live.quota(kind)
        named = [QuotaRecord(id, *used, *limits, *ends) for id, used, limits, ends in records]
        return Quota(kinds, enforced, grace_bytes, grace_inodes, named)

    def quota_on(self, *kinds: QuotaKind) -> None:
        """Begins to count some kinds."""
        self._live.switch_quota(list(kinds), [])

    def quota_off(self, *kinds: QuotaKind) -> None:
        """Ends the counting of some kinds."""
        self._live.switch_quota([], list(kinds))

    def set_quota(
        self,
        kind: QuotaKind,
        id: int,
        *,
        soft_bytes: int = 0,
        hard_bytes: int = 0,
        soft_inodes: int = 0,
        hard_inodes: int = 0,
    ) -> None:
        """Sets all limits of an id; 0 is none."""
        self._live.set_quota(kind, id, [soft_bytes, hard_bytes, soft_inodes, hard_inodes])

    def set_graces(self, kind: QuotaKind, *, bytes: int, inodes: int) -> None:
        """Sets for how many seconds soft limits may be exceeded."""
        self._live.set_graces(kind, bytes, inodes)

    def set_grace_ends(self, kind: QuotaKind, id: int, *, bytes: int = 0, inodes: int = 0) -> None:
        """Sets when the graces of an id end, in seconds since 1970; 0 leaves one as it is."""
        self._live.set_grace_ends(kind, id, bytes, inodes)

    def recount_quota(self) -> int:
        """Counts again; the number of ids whose counts were wrong."""
        return self._live.recount_quota()


class Mount(Live):
    """A mount that threads of this process serve. ``with`` unmounts it at its end."""

    def __init__(self, native: _native.Mountpoint, directory: str) -> None:
        """Of ``platfs.mount``."""
        super().__init__(directory)
        self._native = native
        # Also where the program ends without `unmount`: a process that is gone leaves a mount that nobody serves.
        self._finalizer = weakref.finalize(self, native.end)

    def unmount(self) -> None:
        """Unmounts the volume and closes it. Where files are open in it, that is ``OSError`` (``EBUSY``): it stays
        mounted, and this can be called again. Any other failure says what could not be stored."""
        self._native.unmount()

    def __enter__(self) -> "Mount":
        return self

    def __exit__(self, *error: Any) -> None:
        self.unmount()


def mount(image: HostPath, directory: HostPath, **options: Union[bool, int, str, None]) -> Mount:
    """Mounts an image on a directory, and serves it on threads of this process, while Python goes on.

    ``image`` is a path, a part of a disk or the address of a volume in a store. Options are those of ``plat mount -o``:
    ``ro=True``, ``noatime=True``, ``commit=30``. Without ``ro`` and ``rw`` the volume is mounted for reading, with a
    warning, where it can't be written.
    """
    words = [name if value is True else f"{name}={value}" for name, value in options.items()
             if value is not None and value is not False]
    divided = [word for word in words if "," in word]
    if divided:
        raise ValueError(f"an option with a comma can't be passed on: {divided[0]!r}")
    place = os.path.abspath(os.fsdecode(directory))
    native = _native.mount(os.fsdecode(image), place, ",".join(words))
    mounted = Mount(native, place)
    try:
        for text in native.warnings:
            warnings.warn(f"{os.fsdecode(image)}: {text}", RuntimeWarning, stacklevel=2)
    except RuntimeWarning:
        mounted.unmount()
        raise
    return mounted


def _sizes(found: tuple[int, list[int], list[int], list[int], int, int]) -> Sizes:
    block_size, (blocks_before, blocks), (bytes_before, bytes), (groups_before, groups), *moved = found
    return Sizes(block_size, blocks_before, blocks, bytes_before, bytes, groups_before, groups, moved[0], moved[1])
