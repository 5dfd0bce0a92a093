"""Images as a file system of fsspec: ``fsspec.open("plat://etc/passwd::file://disk.img")``."""

from __future__ import annotations

import os
import stat as bits
from datetime import datetime, timezone
from typing import Any, Optional

from fsspec import AbstractFileSystem, open_files
from fsspec.utils import DEFAULT_BLOCK_SIZE

from . import _native
from ._image import Image

_KINDS = {bits.S_IFDIR: "directory", bits.S_IFREG: "file", bits.S_IFLNK: "link"}


def _moment(nanoseconds: int) -> datetime:
    """The time, without the nanoseconds that a datetime can't hold. A later time never becomes an earlier one."""
    seconds, rest = divmod(nanoseconds, 10**9)
    return datetime.fromtimestamp(seconds, timezone.utc).replace(microsecond=rest // 1000)


class PlatFileSystem(AbstractFileSystem):
    """The files of an image. ``fo`` is a path or URL of fsspec, an address of a store, a file object or a `platfs.Image`.

    ``mode="r+"`` changes the image: then ``fo`` is a path of this host, an address of a store, or an image that is open to
    write. What was written is stable after `sync`, or when the image is closed by `close`.
    """

    protocol = "plat"
    root_marker = ""
    cachable = False

    def __init__(
        self,
        fo: Any = "",
        mode: str = "r",
        target_protocol: Optional[str] = None,
        target_options: Optional[dict[str, Any]] = None,
        **kwargs: Any,
    ) -> None:
        """Opens the image; ``target_protocol`` and ``target_options`` are of the file system that ``fo`` lies in."""
        super().__init__(**kwargs)
        if mode not in ("r", "r+"):
            raise ValueError("mode 'r' to read, 'r+' to change")
        if isinstance(fo, Image):
            self.image = fo
            return
        if mode == "r+":
            self.image = Image(fo, write=True)
            return
        if isinstance(fo, str) and not (_native.is_address(fo) and "#" in fo):
            files = open_files(fo, protocol=target_protocol, **(target_options or {}))
            if len(files) != 1:
                raise ValueError(f"{fo}: {len(files)} files, not one")
            inner = files[0]
            # A file of this host is opened as such: its calls need no lock of Python.
            here = "file" in ([inner.fs.protocol] if isinstance(inner.fs.protocol, str) else inner.fs.protocol)
            fo = inner.path if here and inner.compression is None else inner.open()
        self.image = Image(fo)

    def close(self) -> None:
        """Closes the image."""
        self.image.close()

    def sync(self) -> None:
        """Makes stable all that was written."""
        self.image.sync()

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        stripped = super()._strip_protocol(path)
        return [one.strip("/") for one in stripped] if isinstance(stripped, list) else stripped.strip("/")

    def _at(self, path: Any) -> str:
        return "/" + str(self._strip_protocol(path))

    @staticmethod
    def _facts(path: str, found: os.stat_result) -> dict[str, Any]:
        return {
            "name": path,
            "size": found.st_size,
            "type": _KINDS.get(bits.S_IFMT(found.st_mode), "other"),
            "mode": found.st_mode,
            "uid": found.st_uid,
            "gid": found.st_gid,
            "mtime": found.st_mtime,
            "ino": found.st_ino,
            "nlink": found.st_nlink,
        }

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """The facts of a path; symbolic links are followed."""
        path = self._strip_protocol(path)
        return self._facts(path, self.image.stat("/" + path))

    def ls(self, path: str, detail: bool = True, **_: Any) -> Any:
        """What a directory holds; a file stands for itself."""
        path = self._strip_protocol(path)
        own = self.info(path)
        if own["type"] != "directory":
            found = [own]
        else:
            prefix = path + "/" if path else ""
            entries = self.image.scandir("/" + path, stat=True)
            found = [self._facts(prefix + entry.name, entry.stat(follow_symlinks=False)) for entry in entries]
        return found if detail else sorted(entry["name"] for entry in found)

    def created(self, path: str) -> datetime:
        """When a file was made, or else changed last."""
        made = self.image.birthtime_ns(self._at(path))
        return self.modified(path) if made is None else _moment(made)

    def modified(self, path: str) -> datetime:
        """When the contents of a file were changed last."""
        return _moment(self.image.stat(self._at(path)).st_mtime_ns)

    def mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        """Makes a directory, with those above it if that is not said otherwise."""
        path = self._at(path)
        if create_parents:
            self.image.makedirs(os.path.dirname(path))
        self.image.mkdir(path)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Makes a directory and those above it."""
        path = self._at(path)
        if not exist_ok and self.image.exists(path):
            raise FileExistsError(17, "it exists", path)
        self.image.makedirs(path)

    def rmdir(self, path: str) -> None:
        """Removes an empty directory."""
        self.image.rmdir(self._at(path))

    def rm_file(self, path: str) -> None:
        """Removes a file."""
        self.image.remove(self._at(path))

    def rm(self, path: Any, recursive: bool = False, maxdepth: Optional[int] = None) -> None:
        """Removes files, and with ``recursive`` directories with all below them."""
        for found in reversed(self.expand_path(path, recursive=recursive, maxdepth=maxdepth)):
            if bits.S_ISDIR(self.image.lstat(self._at(found)).st_mode):
                self.rmdir(found)
            else:
                self.rm_file(found)

    def mv_file(self, path1: str, path2: str, **_: Any) -> None:
        """Renames a file."""
        self.image.rename(self._at(path1), self._at(path2))

    def cp_file(self, path1: str, path2: str, **_: Any) -> None:
        """Copies a file, or makes a directory in the place of one."""
        source, to = self._at(path1), self._at(path2)
        if self.isdir(source):
            self.image.makedirs(to)
            return
        self.image.makedirs(os.path.dirname(to))
        with self.image.open(source, "rb", 0) as read, self.image.open(to, "wb", 0) as written:
            while part := read.read(4 << 20):
                written.write(part)

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int = DEFAULT_BLOCK_SIZE,
        autocommit: bool = True,
        cache_options: Optional[dict[str, Any]] = None,
        **_: Any,
    ) -> Any:
        path = self._at(path)
        if mode[:1] in ("w", "a", "x") and self.image.writable:
            self.image.makedirs(os.path.dirname(path))
        return self.image.open(path, mode)
