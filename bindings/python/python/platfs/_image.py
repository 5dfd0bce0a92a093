"""An open image: what os and shutil do with paths, done inside of it."""

from __future__ import annotations

import os
import stat as bits
from dataclasses import dataclass
from typing import IO, Any, Iterator, Optional, Union

from . import _native
from ._file import opened
from ._path import Path

#: A path inside of an image. Text is encoded as os.fsencode does it.
AnyPath = Union[str, bytes, Path, "os.PathLike[str]"]

_TYPES = {"-": bits.S_IFREG, "d": bits.S_IFDIR, "l": bits.S_IFLNK, "c": bits.S_IFCHR, "b": bits.S_IFBLK,
          "p": bits.S_IFIFO, "s": bits.S_IFSOCK}


def encoded(path: AnyPath) -> bytes:
    """A path as the image has it."""
    if isinstance(path, bytes):
        return path
    return os.fsencode(path if isinstance(path, str) else os.fspath(path))


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


class DirEntry:
    """A name in a directory, as os.scandir gives it."""

    __slots__ = ("_image", "_above", "_raw", "_inode", "_letter")

    def __init__(self, image: "Image", above: bytes, found: tuple[bytes, int, str]) -> None:
        self._image = image
        self._above = above
        self._raw, self._inode, self._letter = found

    @property
    def name(self) -> str:
        """The name, decoded as os.fsdecode does it."""
        return os.fsdecode(self._raw)

    @property
    def path(self) -> str:
        """The path from the root of the image."""
        return os.fsdecode(self._full)

    @property
    def _full(self) -> bytes:
        return self._above.rstrip(b"/") + b"/" + self._raw

    def inode(self) -> int:
        """The number of the inode."""
        return self._inode

    def is_symlink(self) -> bool:
        """A symbolic link."""
        return self._letter == "l"

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """A directory."""
        return self._is(bits.S_IFDIR, follow_symlinks)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """A regular file."""
        return self._is(bits.S_IFREG, follow_symlinks)

    def _is(self, kind: int, follow: bool) -> bool:
        if follow and self.is_symlink():
            try:
                return bits.S_IFMT(self.stat().st_mode) == kind
            except OSError:
                return False
        return _TYPES[self._letter] == kind

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """The facts of it."""
        return self._image.stat(self._full, follow_symlinks=follow_symlinks)

    def __repr__(self) -> str:
        return f"<DirEntry {self.name!r}>"


class Image:
    """An ext2, ext3 or ext4 image: a path, or a binary file object that can seek.

    Paths begin at the root of the image. Symbolic links never lead out of it. Without ``write`` nothing is ever written,
    not even to replay a journal. Failures are ``OSError`` with the errno that Linux would give.
    """

    def __init__(self, source: Any, *, write: bool = False, force: bool = False) -> None:
        """Opens it; ``force`` opens for writing what is marked as having errors."""
        if hasattr(source, "seek"):
            self._native = _native.Image.open_object(source, write, force)
        else:
            self._native = _native.Image.open(os.fspath(source), write, force)

    @classmethod
    def create(cls, path: Any, size: int, *, type: str = "ext4", label: str = "") -> "Image":
        """Makes a new file of ``size`` bytes with an empty volume, and opens it for writing."""
        self = cls.__new__(cls)
        self._native = _native.Image.format(os.fspath(path), size, type, label.encode())
        return self

    def close(self) -> None:
        """Closes the image; files of it that are open keep it until they are closed."""
        self._native.close()

    def sync(self) -> None:
        """Makes stable all that was written."""
        self._native.sync()

    def __enter__(self) -> "Image":
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def __truediv__(self, path: str) -> Path:
        return Path(self, "/") / path

    def path(self, path: str = "/") -> Path:
        """A path as an object in the manner of pathlib."""
        return Path(self, path)

    @property
    def writable(self) -> bool:
        """Whether the image is open for writing."""
        return self._native.writable

    def open(self, path: AnyPath, mode: str = "r", buffering: int = -1, **text: Any) -> IO[Any]:
        """Opens a file as the function ``open`` does; text takes ``encoding``, ``errors`` and ``newline``."""
        kind, rest = mode[:1], mode[1:]
        if kind not in ("r", "w", "a", "x") or len(rest) > 2 or set(rest) - set("bt+") or {"b", "t"} <= set(rest):
            raise ValueError(f"invalid mode: {mode!r}")
        if (kind != "r" or "+" in mode) and not self.writable:
            raise OSError(30, "the image is open to read only", os.fsdecode(encoded(path)))
        file = self._native.file(encoded(path), kind in "wa", kind == "x", kind == "w")
        return opened(file, os.fsdecode(encoded(path)), mode, buffering, **text)

    def read_bytes(self, path: AnyPath) -> bytes:
        """All bytes of a file."""
        with self.open(path, "rb", 0) as file:
            return file.read()

    def write_bytes(self, path: AnyPath, data: Any) -> int:
        """Makes a file of these bytes, in place of one that exists."""
        with self.open(path, "wb", 0) as file:
            return file.write(data)

    def stat(self, path: AnyPath, *, follow_symlinks: bool = True) -> os.stat_result:
        """The facts of a file."""
        mode, inode, device, links, uid, gid, size, times, rest = self._native.stat(encoded(path), follow_symlinks)
        whole = tuple(seconds for seconds, _ in times)
        floats = tuple(seconds + part / 1e9 for seconds, part in times)
        exact = tuple(seconds * 1_000_000_000 + part for seconds, part in times)
        sectors, major, minor = rest
        number = os.makedev(major, minor) if major or minor else 0
        return os.stat_result(
            (mode, inode, device, links, uid, gid, size, *whole, *floats, *exact, 4096, sectors, number)
        )

    def lstat(self, path: AnyPath) -> os.stat_result:
        """The facts of a file; a symbolic link is not followed."""
        return self.stat(path, follow_symlinks=False)

    def exists(self, path: AnyPath) -> bool:
        """Whether a path leads to something."""
        try:
            self.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def scandir(self, path: AnyPath = "/") -> Iterator[DirEntry]:
        """What a directory holds."""
        raw = encoded(path)
        for found in self._native.list(raw):
            yield DirEntry(self, b"/" + raw.lstrip(b"/"), found)

    def listdir(self, path: AnyPath = "/") -> list[str]:
        """The names in a directory."""
        return [os.fsdecode(name) for name, _, _ in self._native.list(encoded(path))]

    def walk(self, top: AnyPath = "/", topdown: bool = True) -> Iterator[tuple[str, list[str], list[str]]]:
        """Directory by directory: path, names of directories, other names; symbolic links are not followed."""
        directories: list[str] = []
        others: list[str] = []
        for entry in self.scandir(top):
            (directories if entry.is_dir(follow_symlinks=False) else others).append(entry.name)
        name = os.fsdecode(encoded(top))
        if topdown:
            yield name, directories, others
        for directory in directories:
            yield from self.walk(name.rstrip("/") + "/" + directory, topdown)
        if not topdown:
            yield name, directories, others

    def readlink(self, path: AnyPath) -> str:
        """Where a symbolic link leads."""
        return os.fsdecode(self._native.read_link(encoded(path)))

    def mkdir(self, path: AnyPath, mode: int = 0o755) -> None:
        """Makes a directory."""
        self._native.mkdir(encoded(path), mode)

    def makedirs(self, path: AnyPath) -> None:
        """Makes a directory and those above it; one that exists is no failure."""
        self._native.make_dirs(encoded(path))

    def remove(self, path: AnyPath) -> None:
        """Removes a name of a file."""
        self._native.unlink(encoded(path))

    def rmdir(self, path: AnyPath) -> None:
        """Removes an empty directory."""
        self._native.rmdir(encoded(path))

    def rmtree(self, path: AnyPath) -> None:
        """Removes a directory and all below it."""
        self._native.remove_all(encoded(path))

    def rename(self, source: AnyPath, to: AnyPath) -> None:
        """Renames, and replaces what had the new name."""
        self._native.rename(encoded(source), encoded(to))

    def link(self, original: AnyPath, path: AnyPath) -> None:
        """Gives a file another name."""
        self._native.link(encoded(original), encoded(path))

    def symlink(self, target: AnyPath, path: AnyPath) -> None:
        """Makes a symbolic link ``path`` that leads to ``target``."""
        self._native.symlink(encoded(target), encoded(path))

    def chmod(self, path: AnyPath, mode: int) -> None:
        """Changes permissions."""
        self._native.chmod(encoded(path), mode & 0o7777)

    def chown(self, path: AnyPath, uid: int, gid: int) -> None:
        """Changes owner and group."""
        self._native.chown(encoded(path), uid, gid)

    def utime(self, path: AnyPath, *, ns: tuple[int, int]) -> None:
        """Changes the times of access and of change of contents, in nanoseconds since 1970."""
        self._native.utime(encoded(path), *ns)

    def listxattr(self, path: AnyPath) -> list[str]:
        """The names of the extended attributes."""
        return [os.fsdecode(name) for name in self._native.xattrs(encoded(path))]

    def getxattr(self, path: AnyPath, name: str) -> bytes:
        """The value of an attribute."""
        value = self._native.xattr(encoded(path), os.fsencode(name))
        if value is None:
            raise OSError(61, "no such attribute", os.fsdecode(encoded(path)))
        return value

    def setxattr(self, path: AnyPath, name: str, value: bytes) -> None:
        """Sets an attribute."""
        self._native.set_xattr(encoded(path), os.fsencode(name), value)

    def removexattr(self, path: AnyPath, name: str) -> None:
        """Removes an attribute."""
        self._native.remove_xattr(encoded(path), os.fsencode(name))

    def extents(self, path: AnyPath) -> list[Extent]:
        """The map of a file."""
        return [Extent(*piece) for piece in self._native.extents(encoded(path))]

    def frag(self, path: AnyPath) -> int:
        """In how many pieces a file lies."""
        pieces, behind = 0, None
        for extent in self.extents(path):
            if extent.physical is not None:
                pieces += extent.physical != behind
                behind = extent.physical + extent.count
        return pieces
