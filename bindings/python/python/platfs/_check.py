"""The check of a volume."""

from __future__ import annotations

import enum
import os
from dataclasses import dataclass, field
from typing import Optional

from . import _native
from ._source import CACHE_SIZE, Source, named


class Severity(enum.IntEnum):
    """How bad an issue is."""

    #: Nothing is lost and nothing will be.
    UNTIDY = 0
    #: The volume must not be written before it is repaired: what is there could be overwritten.
    WRONG = 1
    #: Something is lost already, or the repair takes something away.
    DAMAGE = 2
    #: What the rest depends on.
    FATAL = 3


@dataclass(frozen=True)
class Issue:
    """One thing that is wrong."""

    #: The name of its kind, which stays the same in later versions: ``"inode-links"``.
    kind: str
    title: str
    #: What the rule is for, and how it comes to be broken.
    means: str = field(repr=False)
    #: What the repair does, and what it risks.
    risk: str = field(repr=False)
    found: str
    #: How it is repaired.
    repair: str
    severity: Severity
    #: The repair loses nothing.
    safe: bool
    #: The block group.
    group: Optional[int] = None
    inode: Optional[int] = None
    #: The block of the volume.
    block: Optional[int] = None
    #: The name in the directory that ``inode`` is, decoded as os.fsdecode does it.
    name: Optional[str] = None


@dataclass(frozen=True)
class Report:
    """What a check saw."""

    #: What is wrong; ``count`` says how much that is if it is more than was to be kept.
    issues: list[Issue] = field(repr=False)
    count: int
    repaired: int
    files: int
    directories: int
    #: Files in more than one piece.
    fragmented: int
    blocks_used: int
    blocks: int
    inodes_used: int
    inodes: int

    @property
    def sound(self) -> bool:
        """Nothing was wrong."""
        return self.count == 0

    @property
    def sound_now(self) -> bool:
        """Nothing is wrong any more."""
        return self.count == self.repaired


def check(
    source: Source,
    *,
    repair: bool = False,
    limit: int = 100_000,
    offset: int = 0,
    length: Optional[int] = None,
    cache: Optional["os.PathLike[str] | str"] = None,
    cache_size: int = CACHE_SIZE,
) -> Report:
    """Checks an image, named as for `Image`. Nothing is written without ``repair``.

    At most ``limit`` issues are kept; all are counted, and repaired.
    """
    found, counts = _native.check(named(source, offset, length, cache, cache_size), repair, limit)
    issues = []
    for (kind, title, means, risk, text, how, severity, safe), (group, inode, block, name) in found:
        shown = None if name is None else os.fsdecode(name)
        issues.append(
            Issue(kind, title, means, risk, text, how, Severity(severity), safe, group, inode, block, shown)
        )
    return Report(issues, *counts)
