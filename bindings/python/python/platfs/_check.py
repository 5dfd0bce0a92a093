"""The check of a volume."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, Optional

from . import _native


@dataclass(frozen=True)
class Issue:
    """One thing that is wrong."""

    #: The name of its kind; `plat check --explain KIND` says more.
    kind: str
    title: str
    found: str
    #: How it is repaired.
    repair: str
    #: "untidy", "wrong", "damage" or "fatal".
    severity: str
    inode: Optional[int]


@dataclass(frozen=True)
class Report:
    """What a check saw."""

    issues: list[Issue] = field(repr=False)
    count: int
    repaired: int
    files: int
    directories: int
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


def check(source: Any, *, repair: bool = False) -> Report:
    """Checks an image: a path, or a binary file object. Nothing is written without ``repair``."""
    is_object = hasattr(source, "seek")
    path, thing = (None, source) if is_object else (os.fspath(source), None)
    found, counts = _native.check(path, thing, repair)
    return Report([Issue(*issue) for issue in found], *counts)
