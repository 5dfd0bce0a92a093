"""An open file as a class of io."""

from __future__ import annotations

import io
import os
import warnings
from typing import Any, Optional, Union

from ._native import File

#: Bytes in memory.
Buffer = Union[bytes, bytearray, memoryview]

_MOST = 1 << 62
_PIECE = 128 << 10
#: Bytes of the buffer in front of a file.
BUFFER_SIZE = 256 << 10


class FileIO(io.RawIOBase):
    """A file of an image, without a buffer; `io.BufferedReader` and the like put one in front."""

    def __init__(self, file: File, name: str, mode: str) -> None:
        """Of a file that `Image.open` opened."""
        super().__init__()
        self._file = file
        self._at = 0
        self.name = name
        self.mode = mode
        self._reads = "r" in mode or "+" in mode
        self._writes = mode.strip("b") != "r"
        self._appends = "a" in mode

    def __repr__(self) -> str:
        return f"<platfs.FileIO name={self.name!r} mode={self.mode!r}>"

    def _check(self, may: bool, what: str) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")
        if not may:
            raise io.UnsupportedOperation(what)

    def readable(self) -> bool:
        """Whether it is open to read."""
        return self._reads

    def writable(self) -> bool:
        """Whether it is open to write."""
        return self._writes

    def seekable(self) -> bool:
        """It is."""
        return True

    def read(self, size: Optional[int] = -1) -> bytes:
        """At most `size` bytes, or all that is left."""
        self._check(self._reads, "not open to read")
        if size is None or size < 0:
            return self.readall()
        data = self._file.read(self._at, size)
        self._at += len(data)
        return data

    def readall(self) -> bytes:
        """All that is left."""
        self._check(self._reads, "not open to read")
        parts = []
        while part := self._file.read(self._at, _MOST):
            self._at += len(part)
            parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def readinto(self, buffer: Any) -> int:
        """Fills a buffer as far as there are bytes."""
        if self.closed or not self._reads:
            self._check(self._reads, "not open to read")
        view = memoryview(buffer)
        if view.format != "B" or view.ndim != 1:
            view = view.cast("B")
        size = len(view)
        if size <= _PIECE:
            data = self._file.read(self._at, size)
            done = len(data)
            view[:done] = data
            self._at += done
            return done
        done = 0
        # In pieces: small ones lie in memory that is there already.
        while done < size:
            data = self._file.read(self._at, min(size - done, _PIECE))
            if not data:
                break
            view[done : done + len(data)] = data
            self._at += len(data)
            done += len(data)
        return done

    def write(self, data: Any) -> int:
        """Writes all of it."""
        self._check(self._writes, "not open to write")
        content = data if type(data) is bytes else bytes(memoryview(data).cast("B"))
        if self._appends:
            self._at = self._file.size()
        self._file.write(self._at, content)
        self._at += len(content)
        return len(content)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Goes to a place."""
        self._check(True, "")
        if whence == os.SEEK_SET:
            to = offset
        elif whence == os.SEEK_CUR:
            to = self._at + offset
        elif whence == os.SEEK_END:
            to = self._file.size() + offset
        else:
            raise ValueError(f"whence {whence} is none of 0, 1, 2")
        if to < 0:
            raise OSError(22, "a place before the begin of the file")
        self._at = to
        return to

    def tell(self) -> int:
        """The place."""
        self._check(True, "")
        return self._at

    def truncate(self, size: Optional[int] = None) -> int:
        """Cuts or lengthens."""
        self._check(self._writes, "not open to write")
        size = self._at if size is None else size
        if size < 0:
            raise OSError(22, "a length is not negative", self.name)
        self._file.truncate(size)
        return size

    def sync(self) -> None:
        """Makes the file stable, as os.fsync."""
        self._check(True, "")
        self._file.sync()

    def _dealloc_warn(self, source: object) -> None:
        # The classes of io call this where a file goes that nobody closed.
        if not self.closed:
            warnings.warn(f"unclosed file {self!r}", ResourceWarning, source=source)

    def close(self) -> None:
        """Closes it."""
        if not self.closed:
            if getattr(self, "_finalizing", False):
                self._dealloc_warn(self)
            try:
                super().close()
            finally:
                self._file.close()


def opened(file: File, name: str, mode: str, buffering: int, **text: Any) -> Any:
    """The object that `open` returns for a mode."""
    binary = "b" in mode
    raw = FileIO(file, name, mode.replace("t", ""))
    if buffering == 0:
        if not binary:
            raw.close()
            raise ValueError("can't have unbuffered text I/O")
        return raw
    size = buffering if buffering > 1 else BUFFER_SIZE
    buffered: Any
    if raw.readable() and raw.writable():
        buffered = io.BufferedRandom(raw, size)
    elif raw.writable():
        buffered = io.BufferedWriter(raw, size)
    else:
        buffered = io.BufferedReader(raw, size)
    return buffered if binary else io.TextIOWrapper(buffered, line_buffering=buffering == 1, **text)
