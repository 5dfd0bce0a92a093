"""An open image: what os and shutil do with paths, done inside of it."""

from __future__ import annotations

import errno
import os
import stat as bits
import warnings
from typing import IO, Any, Iterable, Iterator, Literal, Optional, Union, overload

from . import _acl, _native
from ._acl import AclEntry
from ._figures import Extent, Fragmentation, FreeBin, FreeSpace
from ._file import Buffer, FileIO, opened
from ._path import Path
from ._source import CACHE_SIZE, Source, named

#: Modes of text files, and of binary files.
Text = Literal["r", "w", "a", "x", "rt", "wt", "at", "xt", "r+", "w+", "a+", "x+"]
Binary = Literal["rb", "wb", "ab", "xb", "r+b", "w+b", "a+b", "x+b", "rb+", "wb+", "ab+", "xb+"]
#: A path inside of an image. Text is encoded as os.fsencode does it.
AnyPath = Union[str, bytes, Path, "DirEntry", "os.PathLike[str]"]

_TYPES = {"-": bits.S_IFREG, "d": bits.S_IFDIR, "l": bits.S_IFLNK, "c": bits.S_IFCHR, "b": bits.S_IFBLK,
          "p": bits.S_IFIFO, "s": bits.S_IFSOCK}
_ACL = {False: b"system.posix_acl_access", True: b"system.posix_acl_default"}


def encoded(path: AnyPath) -> bytes:
    """A path as the image has it."""
    if isinstance(path, DirEntry):
        return path._full
    return os.fsencode(str(path) if isinstance(path, Path) else path)


class DirEntry:
    """A name in a directory, as os.scandir gives it. It is no os.PathLike: its path is inside of the image."""

    __slots__ = ("_image", "_above", "_raw", "_inode", "_letter", "_known")

    def __init__(self, image: "Image", above: bytes, found: tuple[bytes, int, str, Optional[os.stat_result]]) -> None:
        """Of the image that ``scandir`` was called of."""
        self._image = image
        self._above = above
        self._raw, self._inode, self._letter, self._known = found

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
        """The facts of it: without another look at the image if ``scandir`` was asked for them."""
        if self._known is not None and not (follow_symlinks and self.is_symlink()):
            return self._known
        return self._image.stat(self._full, follow_symlinks=follow_symlinks)

    def __repr__(self) -> str:
        return f"<DirEntry {self.name!r}>"


class Image:
    """An ext2, ext3 or ext4 image.

    Paths begin at the root of the image. Symbolic links never lead out of it. Without ``write`` nothing is ever written,
    not even to replay a journal. Failures are ``OSError`` with the errno that Linux would give. Several threads can use
    an image at once. A process that is forked off can read an image that its parent has open to read, if it is a file or a device; all
    others belong to the process that opened them, and calls in another one are ``OSError``.
    """

    _closed = True

    def __init__(
        self,
        source: Source,
        *,
        write: bool = False,
        force: bool = False,
        offset: int = 0,
        length: Optional[int] = None,
        cache: Optional["os.PathLike[str] | str"] = None,
        cache_size: int = CACHE_SIZE,
        take_over: bool = False,
    ) -> None:
        """Opens what `source` names: a path, a volume of an object store, or a binary file object that can seek.

        - ``force`` opens for writing what is marked as having errors.
        - ``offset`` and ``length``, in bytes, name a part of it. Partitions have names, too: ``disk.img@part1``,
          ``disk.img@part:root``.
        - ``cache`` is a directory for what is read of a store, of at most ``cache_size`` bytes.
        - ``take_over`` opens a volume of a store for writing even if another program has it open: that one can write
          nothing from then on.
        """
        self._native = _native.Image.open(named(source, offset, length, cache, cache_size, take_over), write, force)
        self._closed = False

    @classmethod
    def create(
        cls,
        path: Union[str, "os.PathLike[str]"],
        size: int,
        *,
        type: Literal["ext2", "ext3", "ext4"] = "ext4",
        label: str = "",
    ) -> "Image":
        """Makes a new file of ``size`` bytes with an empty volume, and opens it for writing; or a volume of a store."""
        self = cls.__new__(cls)
        self._native = _native.Image.format(named(path), size, type, label.encode())
        self._closed = False
        return self

    def __del__(self) -> None:
        if not self._closed:
            warnings.warn("an image was not closed", ResourceWarning, source=self)

    def close(self) -> None:
        """Closes the image; files of it that are open keep it until they are closed."""
        self._closed = True
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

    def path(self, path: Union[str, Path] = "/") -> Path:
        """A path as an object in the manner of pathlib."""
        return Path(self, path)

    @property
    def writable(self) -> bool:
        """Whether the image is open for writing."""
        return self._native.writable

    @overload
    def open(self, path: AnyPath, mode: Text = "r", buffering: int = -1, *, encoding: Optional[str] = None,
             errors: Optional[str] = None, newline: Optional[str] = None) -> IO[str]: ...
    @overload
    def open(self, path: AnyPath, mode: Binary, buffering: Literal[0]) -> FileIO: ...
    @overload
    def open(self, path: AnyPath, mode: Binary) -> IO[bytes]: ...
    @overload
    def open(self, path: AnyPath, mode: str, buffering: int = -1, **text: Any) -> Any: ...

    def open(self, path: AnyPath, mode: str = "r", buffering: int = -1, **text: Any) -> Any:
        """Opens a file as the function ``open`` does; text takes ``encoding``, ``errors`` and ``newline``."""
        kind, rest = mode[:1], mode[1:]
        twice = len(set(rest)) != len(rest)
        if kind not in ("r", "w", "a", "x") or twice or set(rest) - set("bt+") or {"b", "t"} <= set(rest):
            raise ValueError(f"invalid mode: {mode!r}")
        if "b" in rest and any(value is not None for value in text.values()):
            raise ValueError("binary files have no encoding, errors and newline")
        if (kind != "r" or "+" in mode) and not self.writable:
            raise OSError(30, "the image is open to read only", os.fsdecode(encoded(path)))
        file = self._native.file(encoded(path), kind in "wa", kind == "x", kind == "w")
        return opened(file, os.fsdecode(encoded(path)), mode, buffering, **text)

    def read_bytes(self, path: AnyPath) -> bytes:
        """All bytes of a file."""
        with self.open(path, "rb", 0) as file:
            return file.readall()

    def write_bytes(self, path: AnyPath, data: Buffer) -> int:
        """Makes a file of these bytes, in place of one that exists."""
        with self.open(path, "wb", 0) as file:
            return file.write(data)

    def truncate(self, path: AnyPath, size: int) -> None:
        """Cuts or lengthens a file."""
        with self.open(path, "r+b", 0) as file:
            file.truncate(size)

    def stat(self, path: AnyPath, *, follow_symlinks: bool = True) -> os.stat_result:
        """The facts of a file."""
        return self._native.stat(path if isinstance(path, bytes) else encoded(path), follow_symlinks)

    def birthtime_ns(self, path: AnyPath, *, follow_symlinks: bool = True) -> Optional[int]:
        """When a file was made, in nanoseconds since 1970; None if the volume does not know."""
        return self._native.created(encoded(path), follow_symlinks)

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

    def scandir(self, path: AnyPath = "/", *, stat: bool = False) -> Iterator[DirEntry]:
        """What a directory holds. With ``stat`` the facts of all entries are read at once, which is much faster than to
        ask each."""
        raw = encoded(path)
        above = b"/" + raw.lstrip(b"/")
        return (DirEntry(self, above, found) for found in self._native.names(raw, stat))

    def listdir(self, path: AnyPath = "/") -> list[str]:
        """The names in a directory."""
        return [os.fsdecode(name) for name, _, _, _ in self._native.names(encoded(path), False)]

    def walk(self, top: AnyPath = "/", topdown: bool = True) -> Iterator[tuple[str, list[str], list[str]]]:
        """Directory by directory: path, names of directories, other names.

        As os.walk: symbolic links are not followed, and with ``topdown`` the walk goes only into the directories that are
        left in the list. A directory that can't be read is an ``OSError``; so is one that contains itself.
        """
        first = os.fsdecode(encoded(top))
        # For each level: path, the inodes above, names of directories to go into, and what to give at its end.
        level = self._level(first, frozenset())
        if topdown:
            yield level[0]
        stack = [level]
        while stack:
            (path, directories, others), inodes, above, begun = stack[-1]
            if begun < len(directories):
                stack[-1] = ((path, directories, others), inodes, above, begun + 1)
                name = directories[begun]
                full = path.rstrip("/") + "/" + name
                inode = inodes.get(name)
                if inode is None:
                    inode = self.stat(full, follow_symlinks=False).st_ino
                if inode in above:
                    raise OSError(117, "the directory contains itself", full)
                below = self._level(full, above | {inode})
                if topdown:
                    yield below[0]
                stack.append(below)
                continue
            stack.pop()
            if not topdown:
                yield path, directories, others

    def _level(
        self, path: str, above: frozenset[int]
    ) -> tuple[tuple[str, list[str], list[str]], dict[str, int], frozenset[int], int]:
        directories: dict[str, int] = {}
        others: list[str] = []
        for name, inode, letter, _ in self._native.names(encoded(path), False):
            if letter == "d":
                directories[os.fsdecode(name)] = inode
            else:
                others.append(os.fsdecode(name))
        if not above:
            above = frozenset({self.stat(path).st_ino})
        return (path, list(directories), others), directories, above, 0

    def readlink(self, path: AnyPath) -> str:
        """Where a symbolic link leads."""
        return os.fsdecode(self._native.read_link(encoded(path)))

    def mkdir(self, path: AnyPath, mode: int = 0o755) -> None:
        """Makes a directory."""
        self._native.mkdir(encoded(path), mode)

    def makedirs(self, path: AnyPath, mode: int = 0o755, exist_ok: bool = True) -> None:
        """Makes a directory and those above it. One that exists is a failure only without ``exist_ok``."""
        exists = self.exists(path)
        if exists and not exist_ok:
            raise FileExistsError(errno.EEXIST, "the directory exists", os.fsdecode(encoded(path)))
        self._native.make_dirs(encoded(path))
        if not exists and mode != 0o755:
            self.chmod(path, mode)

    def remove(self, path: AnyPath) -> None:
        """Removes a name of a file."""
        self._native.unlink(encoded(path))

    def rmdir(self, path: AnyPath) -> None:
        """Removes an empty directory."""
        self._native.rmdir(encoded(path))

    def rmtree(self, path: AnyPath) -> None:
        """Removes a directory and all below it."""
        self._native.remove_all(encoded(path))

    def mknod(self, path: AnyPath, mode: int = 0o600 | bits.S_IFREG, device: int = 0) -> None:
        """Makes an empty file, a device (``device`` as of os.makedev), a pipe or a socket, as os.mknod."""
        self._native.mknod(encoded(path), mode, (os.major(device), os.minor(device)))

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

    def getacl(self, path: AnyPath, *, default: bool = False) -> list[AclEntry]:
        """The access control list of a file; ``default`` asks for the one that new files of a directory get.

        It is empty if there is none: then the permissions of ``stat`` say all.
        """
        value = self._native.xattr(encoded(path), _ACL[default])
        return [] if value is None else _acl.decoded(value)

    def setacl(self, path: AnyPath, entries: Iterable[AclEntry], *, default: bool = False) -> None:
        """Sets an access control list; without entries it is removed."""
        entries = list(entries)
        if entries:
            self._native.set_xattr(encoded(path), _ACL[default], _acl.encoded(entries))
        elif self._native.xattr(encoded(path), _ACL[default]) is not None:
            self._native.remove_xattr(encoded(path), _ACL[default])

    def extents(self, path: AnyPath) -> list[Extent]:
        """The map of a file."""
        return [Extent(*piece) for piece in self._native.extents(encoded(path))]

    def frag(self, path: AnyPath) -> int:
        """In how many pieces a file lies, as filefrag(8) counts them."""
        return self._native.pieces(encoded(path))[0]

    def fragmentation(self, top: AnyPath = "/", *, worst: int = 10) -> Fragmentation:
        """In how many pieces the files below a directory lie; the ``worst`` are named."""
        (files, mapped, fragmented, extents, blocks, failed), paths = self._native.frag(encoded(top), worst)
        named_ = [(os.fsdecode(path), pieces) for pieces, path in paths]
        return Fragmentation(files, mapped, fragmented, extents, blocks, failed, named_)

    def freefrag(self) -> FreeSpace:
        """How free space is cut up, as e2freefrag(8) counts it."""
        size, blocks, free, runs, shortest, longest, bins = self._native.freefrag()
        return FreeSpace(size, blocks, free, runs, shortest, longest, [FreeBin(*one) for one in bins])
