"""Images into object stores."""

from __future__ import annotations

from dataclasses import dataclass

from . import _native
from ._source import Source, named


@dataclass(frozen=True)
class Pushed:
    """What was pushed."""

    #: Bytes of the image.
    size: int
    #: Chunks that are not zeros.
    chunks: int
    #: Of these, those that were not in the store.
    new_chunks: int
    #: Bytes that were sent for them.
    sent_bytes: int


def push(source: Source, address: str, *, replace: bool = False) -> Pushed:
    """Brings an image into an object store, as the volume that ``address`` names: ``file:///srv/store#NAME``.

    Only chunks that are not in the store travel. ``replace`` puts it in the place of a volume of that name.
    """
    return Pushed(*_native.push(named(source), address, replace))
