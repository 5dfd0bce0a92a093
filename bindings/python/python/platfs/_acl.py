"""Access control lists, in the form of Linux's system calls."""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass
from typing import Iterable, Optional

_VERSION = 2
_NO_ID = 0xFFFFFFFF


class Tag(enum.IntEnum):
    """Whom an entry is about."""

    #: The owner of the file.
    USER_OBJ = 0x01
    #: A user, by number.
    USER = 0x02
    #: The group of the file.
    GROUP_OBJ = 0x04
    #: A group, by number.
    GROUP = 0x08
    #: The most that users and groups of the list get.
    MASK = 0x10
    #: All others.
    OTHER = 0x20


@dataclass(frozen=True)
class AclEntry:
    """An entry of an access control list."""

    tag: Tag
    #: The sum of 4 (read), 2 (write) and 1 (execute).
    permissions: int
    #: The number of the user or group; None for other tags.
    id: Optional[int] = None

    def __str__(self) -> str:
        """As getfacl(1) shows it."""
        name = {Tag.USER_OBJ: "user", Tag.USER: "user", Tag.GROUP_OBJ: "group", Tag.GROUP: "group", Tag.MASK: "mask",
                Tag.OTHER: "other"}[self.tag]
        bits = "".join(letter if self.permissions & bit else "-" for letter, bit in (("r", 4), ("w", 2), ("x", 1)))
        return f"{name}:{'' if self.id is None else self.id}:{bits}"


def decoded(value: bytes) -> list[AclEntry]:
    """The entries of an attribute's value."""
    if len(value) < 4 or len(value) % 8 != 4 or struct.unpack_from("<I", value)[0] != _VERSION:
        raise OSError(22, "this is no access control list")
    entries = []
    for tag, permissions, number in struct.iter_unpack("<HHI", value[4:]):
        if tag not in Tag.__members__.values() or permissions > 7:
            raise OSError(22, "this is no access control list")
        entries.append(AclEntry(Tag(tag), permissions, number if tag in (Tag.USER, Tag.GROUP) else None))
    return entries


def encoded(entries: Iterable[AclEntry]) -> bytes:
    """The value of an attribute; the entries may come in any order."""
    parts = [struct.pack("<I", _VERSION)]
    for entry in sorted(entries, key=lambda entry: (entry.tag, entry.id or 0)):
        if (entry.id is not None) != (entry.tag in (Tag.USER, Tag.GROUP)):
            raise ValueError(f"{entry.tag.name}: entries of users and groups have a number, others have none")
        if not 0 <= entry.permissions <= 7:
            raise ValueError(f"{entry.permissions}: permissions are between 0 and 7")
        number = _NO_ID if entry.id is None else entry.id
        if not 0 <= number <= _NO_ID:
            raise ValueError(f"{number} is no number of a user or group")
        parts.append(struct.pack("<HHI", entry.tag, entry.permissions, number))
    return b"".join(parts)
