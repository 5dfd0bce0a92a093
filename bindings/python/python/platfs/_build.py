"""Images of trees."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Callable, Optional, Sequence, Union

from . import _native


@dataclass(frozen=True)
class Progress:
    """How far a build has come."""

    #: "reading", "planning", "names", "data", "finishing".
    stage: str
    files: int
    total_files: Optional[int]
    bytes: int
    total_bytes: Optional[int]


@dataclass(frozen=True)
class Built:
    """What was built."""

    bytes: int
    files: int
    directories: int
    free_blocks: int
    block_size: int


def build(
    source: Any,
    out: Any,
    *,
    type: str = "ext4",
    size: Union[int, str] = "auto",
    label: str = "",
    overwrite: bool = False,
    exclude: Sequence[str] = (),
    progress: Optional[Callable[[Progress], None]] = None,
) -> Built:
    """Makes an image of a directory, a tar archive, an OCI layout or a docker-save archive.

    ``size`` is a number of bytes, ``"auto"`` (the contents and a tenth more) or ``"min"``. The file appears whole or not at
    all. An exception in ``progress`` ends the build, and is raised from here.
    """
    if isinstance(size, str) and size not in ("auto", "min"):
        raise ValueError(f"size {size!r}: a number of bytes, 'auto' or 'min'")
    if not isinstance(size, str) and size <= 0:
        raise ValueError("size: at least one byte")
    wanted = {
        "type": type,
        "size": {"auto": 0, "min": None}.get(size) if isinstance(size, str) else size,
        "label": list(label.encode()),
        "overwrite": overwrite,
        "exclude": list(exclude),
    }
    call = None if progress is None else lambda *now: progress(Progress(*now))
    return Built(*_native.build(os.fspath(source), os.fspath(out), wanted, call))
