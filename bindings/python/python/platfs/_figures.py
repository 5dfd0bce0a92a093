"""Fragmentation as numbers, by the rules of filefrag(8) and e2freefrag(8)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class Extent:
    """A piece of a file's map, in blocks."""

    #: The first block of the file.
    logical: int
    #: How many blocks.
    count: int
    #: The first block of the volume; None for a hole.
    physical: Optional[int]
    #: Bytes were written there; else they read as zeros.
    written: bool


@dataclass(frozen=True)
class Fragmentation:
    """In how many pieces the files below a directory lie. A file of several names counts once."""

    #: Regular files.
    files: int
    #: Files that have blocks.
    files_with_blocks: int
    #: Files in more than one piece.
    fragmented: int
    #: Pieces of all files.
    extents: int
    #: Blocks of all files.
    blocks: int
    #: Files and directories that can't be read, and count nowhere else.
    unreadable: int
    #: The most fragmented files: path and pieces, most first.
    worst: list[tuple[str, int]]

    @property
    def extents_per_file(self) -> float:
        """Pieces for each file that has blocks."""
        return self.extents / self.files_with_blocks if self.files_with_blocks else 0.0


@dataclass(frozen=True)
class FreeBin:
    """Free runs of at least `low` bytes and less than twice that."""

    low: int
    extents: int
    blocks: int


@dataclass(frozen=True)
class FreeSpace:
    """How free space is cut up. Lengths are in blocks; on volumes with clusters runs are those of clusters."""

    block_size: int
    #: Blocks of the volume.
    blocks: int
    free_blocks: int
    #: Free runs.
    free_extents: int
    shortest_blocks: int
    longest_blocks: int
    histogram: list[FreeBin]

    @property
    def mean_blocks(self) -> float:
        """Blocks of a free run."""
        return self.free_blocks / self.free_extents if self.free_extents else 0.0
