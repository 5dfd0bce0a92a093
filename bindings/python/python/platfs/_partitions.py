"""The partitions of a disk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from . import _native
from ._source import Source, named


@dataclass(frozen=True)
class Partition:
    """A partition: ``Image(disk, offset=one.start, length=one.size)`` opens it, as ``Image("disk.img@part1")`` does."""

    #: As Linux counts: logical partitions of an MBR from 5.
    number: int
    #: First byte.
    start: int
    #: Bytes.
    size: int
    #: What a GPT calls it.
    name: Optional[str]


def partitions(disk: Source) -> list[Partition]:
    """The partitions of a disk with a GPT or an MBR, in the order of their numbers."""
    return [Partition(*facts) for facts in _native.partitions(named(disk))]
