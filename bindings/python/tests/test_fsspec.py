"""The generic tests of fsspec, on an image that is open to change; and what is only read."""

import fsspec
import pytest
from fsspec.tests.abstract import (
    AbstractCopyTests,
    AbstractFixtures,
    AbstractGetTests,
    AbstractOpenTests,
    AbstractPipeTests,
    AbstractPutTests,
)

import platfs


class Fixtures(AbstractFixtures):
    @pytest.fixture
    def fs(self, tmp_path):
        path = tmp_path / "fsspec.img"
        platfs.Image.create(path, 16 << 20).close()
        files = fsspec.filesystem("plat", fo=str(path), mode="r+")
        yield files
        files.close()
        assert platfs.check(path).sound

    @pytest.fixture
    def fs_path(self):
        return "at"


class TestCopy(Fixtures, AbstractCopyTests):
    pass


class TestGet(Fixtures, AbstractGetTests):
    pass


class TestPut(Fixtures, AbstractPutTests):
    pass


class TestOpen(Fixtures, AbstractOpenTests):
    pass


class TestPipe(Fixtures, AbstractPipeTests):
    pass


def test_other_calls(tmp_path):
    path = tmp_path / "calls.img"
    platfs.Image.create(path, 16 << 20).close()
    files = fsspec.filesystem("plat", fo=str(path), mode="r+")
    files.makedirs("a/b")
    with pytest.raises(FileExistsError):
        files.makedirs("a/b")
    files.pipe("a/b/c", b"text")
    with files.open("a/b/c", "ab") as file:
        file.write(b" and more")
    files.mv("a/b/c", "a/d")
    assert files.cat("a/d") == b"text and more" and files.modified("a/d") >= files.created("a")
    files.sync()
    files.rm("a", recursive=True)
    assert files.ls("", detail=False) == ["lost+found"]
    files.close()
    only = fsspec.filesystem("plat", fo=str(path))
    with pytest.raises(OSError):
        only.pipe("x", b"")
    with pytest.raises(ValueError):
        fsspec.filesystem("plat", fo=str(path), mode="w")
