"""Images as a file system of fsspec: ``fsspec.open("plat://etc/passwd::file://disk.img")``."""

from __future__ import annotations

import stat as bits
from typing import Any, Optional

from fsspec import AbstractFileSystem, open_files
from fsspec.utils import DEFAULT_BLOCK_SIZE

from ._image import Image

_KINDS = {bits.S_IFDIR: "directory", bits.S_IFREG: "file", bits.S_IFLNK: "link"}


class PlatFileSystem(AbstractFileSystem):
    """Reads files of an image, which is a path, a URL of fsspec, a file object or a `platfs.Image`."""

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
        super().__init__(**kwargs)
        if mode != "r":
            raise ValueError("only reading: mode 'r'")
        if isinstance(fo, Image):
            self.image = fo
            return
        if isinstance(fo, str):
            files = open_files(fo, protocol=target_protocol, **(target_options or {}))
            if len(files) != 1:
                raise ValueError(f"{fo}: {len(files)} files, not one")
            fo = files[0].open()
        self.image = Image(fo)

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return super()._strip_protocol(path).strip("/")

    def _facts(self, path: str, follow: bool) -> dict[str, Any]:
        found = self.image.stat("/" + path, follow_symlinks=follow)
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
        return self._facts(self._strip_protocol(path), True)

    def ls(self, path: str, detail: bool = True, **_: Any) -> Any:
        """What a directory holds; a file stands for itself."""
        path = self._strip_protocol(path)
        if self.info(path)["type"] != "directory":
            found = [self.info(path)]
        else:
            prefix = path + "/" if path else ""
            found = [self._facts(prefix + name, False) for name in self.image.listdir("/" + path)]
        return found if detail else sorted(entry["name"] for entry in found)

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int = DEFAULT_BLOCK_SIZE,
        autocommit: bool = True,
        cache_options: Optional[dict[str, Any]] = None,
        **_: Any,
    ) -> Any:
        if mode != "rb":
            raise ValueError("only reading: mode 'rb'")
        return self.image.open("/" + self._strip_protocol(path), "rb")
