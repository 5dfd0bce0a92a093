"""Paths in an image, in the manner of pathlib."""

from __future__ import annotations

import errno
import os
import stat as bits
import time
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Iterator, Union

if TYPE_CHECKING:
    from ._image import Image

#: Symbolic links on the way of one path, at most; as Linux has it.
LINKS = 40


class Path:
    """A path in an image. It has the methods of pathlib.Path, and the same meaning.

    It is no ``os.PathLike``: functions of ``os``, ``shutil`` and ``open`` work on files of the host, and would take a path
    of the image for one of the host. They raise ``TypeError``; the methods of paths and of ``Image`` do the same inside of
    the image.
    """

    __slots__ = ("image", "_pure")

    def __init__(self, image: "Image", path: Union[str, PurePosixPath, "Path"] = "/") -> None:
        """Of an image; `Image.path` and `image / "a/b"` make them, too."""
        self.image = image
        inside = path.as_posix() if isinstance(path, Path) else path
        self._pure: PurePosixPath = PurePosixPath("/") / inside

    def __str__(self) -> str:
        return str(self._pure)

    def __repr__(self) -> str:
        return f"platfs.Path({str(self._pure)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Path) and self.image is other.image and self._pure == other._pure

    def __hash__(self) -> int:
        return hash((id(self.image), self._pure))

    def __lt__(self, other: "Path") -> bool:
        return self._pure < other._pure

    def __truediv__(self, name: Union[str, PurePosixPath]) -> "Path":
        # A path from the root stays inside of the image.
        return Path(self.image, self._pure / name)

    def joinpath(self, *names: str) -> "Path":
        """The path with further names behind it."""
        return Path(self.image, self._pure.joinpath(*names))

    @property
    def name(self) -> str:
        """The last name."""
        return self._pure.name

    @property
    def stem(self) -> str:
        """The last name without its suffix."""
        return self._pure.stem

    @property
    def suffix(self) -> str:
        """What stands behind the last point of the name."""
        return self._pure.suffix

    @property
    def suffixes(self) -> list[str]:
        """What stands behind all points of the name."""
        return self._pure.suffixes

    @property
    def parts(self) -> tuple[str, ...]:
        """All names."""
        return self._pure.parts

    @property
    def parent(self) -> "Path":
        """The directory above."""
        return Path(self.image, self._pure.parent)

    @property
    def parents(self) -> tuple["Path", ...]:
        """All directories above, the nearest first."""
        return tuple(Path(self.image, above) for above in self._pure.parents)

    def absolute(self) -> "Path":
        """The path itself: each begins at the root of the image."""
        return self

    def resolve(self, strict: bool = False) -> "Path":
        """The path without symbolic links and without ``..``. With ``strict`` it must lead to something."""
        left, found, links = list(self.parts[:0:-1]), PurePosixPath("/"), 0
        while left:
            name = left.pop()
            if name == "..":
                found = found.parent
                continue
            here = Path(self.image, found / name)
            if not here.is_symlink():
                found = here._pure
                continue
            links += 1
            if links > LINKS:
                raise OSError(errno.ELOOP, "too many symbolic links", str(self))
            target = PurePosixPath(here.readlink())
            found = PurePosixPath("/") if target.is_absolute() else found
            left.extend(name for name in reversed(target.parts) if name != "/")
        resolved = Path(self.image, found)
        if strict:
            resolved.stat()
        return resolved

    def as_posix(self) -> str:
        """The path as text."""
        return str(self._pure)

    def match(self, pattern: str) -> bool:
        """Whether the path matches a pattern, as pathlib.PurePath.match."""
        return self._pure.match(pattern)

    def with_suffix(self, suffix: str) -> "Path":
        """The same path with another suffix."""
        return Path(self.image, self._pure.with_suffix(suffix))

    def is_relative_to(self, other: "Path") -> bool:
        """Whether the path is below another one."""
        return other._pure == self._pure or other._pure in self._pure.parents

    def with_name(self, name: str) -> "Path":
        """The same directory, and another name."""
        return Path(self.image, self._pure.with_name(name))

    def relative_to(self, other: "Path") -> PurePosixPath:
        """The way from another path to this one."""
        return self._pure.relative_to(other._pure)

    def open(self, mode: str = "r", buffering: int = -1, **text: Any) -> Any:
        """As Image.open."""
        return self.image.open(self, mode, buffering, **text)

    def read_bytes(self) -> bytes:
        """All bytes."""
        return self.image.read_bytes(self)

    def read_text(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """All bytes as text."""
        return self.read_bytes().decode(encoding, errors)

    def write_bytes(self, data: Any) -> int:
        """Makes a file of these bytes."""
        return self.image.write_bytes(self, data)

    def write_text(self, text: str, encoding: str = "utf-8") -> int:
        """Makes a file of this text."""
        return self.write_bytes(text.encode(encoding))

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """The facts of it."""
        return self.image.stat(self, follow_symlinks=follow_symlinks)

    def lstat(self) -> os.stat_result:
        """The facts of it; a symbolic link is not followed."""
        return self.stat(follow_symlinks=False)

    def samefile(self, other: Union[str, "Path"]) -> bool:
        """Whether another path leads to the same file."""
        return self.stat().st_ino == self.image.stat(other).st_ino

    def _is(self, kind: int, follow: bool = True) -> bool:
        try:
            return bits.S_IFMT(self.stat(follow_symlinks=follow).st_mode) == kind
        except (FileNotFoundError, NotADirectoryError):
            return False

    def exists(self) -> bool:
        """It leads to something."""
        return self.image.exists(self)

    def is_dir(self) -> bool:
        """A directory."""
        return self._is(bits.S_IFDIR)

    def is_file(self) -> bool:
        """A regular file."""
        return self._is(bits.S_IFREG)

    def is_symlink(self) -> bool:
        """A symbolic link."""
        return self._is(bits.S_IFLNK, follow=False)

    def iterdir(self) -> Iterator["Path"]:
        """What the directory holds."""
        for name in self.image.listdir(self):
            yield self / name

    def walk(self, top_down: bool = True) -> Iterator[tuple["Path", list[str], list[str]]]:
        """As Image.walk, with paths."""
        for path, directories, others in self.image.walk(self, top_down):
            yield Path(self.image, path), directories, others

    def rglob(self, pattern: str) -> Iterator["Path"]:
        """Everything below that matches a pattern. Symbolic links are not followed."""
        return self.glob("**/" + pattern)

    def glob(self, pattern: str) -> Iterator["Path"]:
        """Everything that matches a pattern: ``*``, ``?`` and ``[...]`` within names, ``**`` for directories."""
        names = PurePosixPath(pattern).parts
        if not names or names[0] == "/":
            raise ValueError(f"unacceptable pattern: {pattern!r}")
        seen: set[str] = set()
        for path in self._matches(names):
            if str(path) not in seen:
                seen.add(str(path))
                yield path

    def _matches(self, names: tuple[str, ...]) -> Iterator["Path"]:
        first, rest = names[0], names[1:]
        if first == "**":
            for path, _, _ in self.walk():
                if rest:
                    yield from path._matches(rest)
                else:
                    yield path
            return
        if not set(first) & set("*?["):
            if (self / first).exists() or (self / first).is_symlink():
                yield from (self / first)._matches(rest) if rest else iter((self / first,))
            return
        try:
            entries = list(self.image.scandir(self))
        except NotADirectoryError:
            return
        for entry in entries:
            if fnmatchcase(entry.name, first):
                if not rest:
                    yield self / entry.name
                elif entry.is_dir():
                    yield from (self / entry.name)._matches(rest)

    def readlink(self) -> str:
        """Where the symbolic link leads."""
        return self.image.readlink(self)

    def touch(self, mode: int = 0o644, exist_ok: bool = True) -> None:
        """Makes an empty file, or brings the times of one to now."""
        if exist_ok and self.exists():
            now = time.time_ns()
            self.image.utime(self, ns=(now, now))
            return
        self.image.open(self, "xb", 0).close()
        self.image.chmod(self, mode)

    def mkdir(self, mode: int = 0o755, parents: bool = False, exist_ok: bool = False) -> None:
        """Makes the directory."""
        if exist_ok and self.is_dir():
            return
        if parents:
            self.image.makedirs(self.parent)
        self.image.mkdir(self, mode)

    def unlink(self, missing_ok: bool = False) -> None:
        """Removes the name."""
        try:
            self.image.remove(self)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def rmdir(self) -> None:
        """Removes the empty directory."""
        self.image.rmdir(self)

    def rename(self, to: Union[str, "Path"]) -> "Path":
        """Gives it another path."""
        target = self._beside(to)
        self.image.rename(self, target)
        return target

    def replace(self, to: Union[str, "Path"]) -> "Path":
        """Gives it another path, in place of a file that has it."""
        return self.rename(to)

    def symlink_to(self, target: Union[str, "Path"]) -> None:
        """Makes it a symbolic link."""
        self.image.symlink(target, self)

    def hardlink_to(self, original: Union[str, "Path"]) -> None:
        """Makes it another name of a file."""
        self.image.link(self._beside(original), self)

    def _beside(self, other: Union[str, "Path"]) -> "Path":
        # A path of another image must not be taken for one of this.
        if isinstance(other, Path) and other.image is not self.image:
            raise OSError(errno.EXDEV, "the other path is of another image", str(self), None, str(other))
        return self.image.path(other)

    def chmod(self, mode: int) -> None:
        """Changes permissions."""
        self.image.chmod(self, mode)
