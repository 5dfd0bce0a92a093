"""What the package promises, on images of its own."""

import errno
import io
import os
import threading
import time

import fsspec
import pytest

import platfs


@pytest.fixture
def image(tmp_path):
    with platfs.Image.create(tmp_path / "made.img", 16 << 20, label="made") as image:
        yield image


@pytest.fixture
def tree(tmp_path):
    """A directory with an image of it."""
    source = tmp_path / "tree"
    (source / "etc").mkdir(parents=True)
    (source / "etc/hostname").write_text("guest\n")
    (source / "data").write_bytes(bytes(range(256)) * 4096)
    (source / "link").symlink_to("etc/hostname")
    out = tmp_path / "tree.img"
    built = platfs.build(source, out, label="tree")
    assert built.files == 2 and built.bytes == out.stat().st_size
    return out


def test_paths_are_those_of_pathlib(image):
    etc = image / "etc"
    etc.mkdir()
    (etc / "a.txt").write_text("a\n")
    assert (etc / "a.txt").read_text() == "a\n" and (etc / "a.txt").is_file()
    assert [path.name for path in etc.iterdir()] == ["a.txt"]
    (etc / "b").symlink_to("a.txt")
    assert (etc / "b").is_symlink() and (etc / "b").readlink() == "a.txt" and (etc / "b").read_text() == "a\n"
    (etc / "c").hardlink_to(etc / "a.txt")
    assert (etc / "c").stat().st_nlink == 2 and (etc / "a.txt").suffix == ".txt"
    moved = (etc / "c").rename("/moved")
    assert moved.exists() and not (etc / "c").exists() and moved.parent == image.path()
    assert sorted(path.name for path in image.path().rglob("*.txt")) == ["a.txt"]
    (image / "deep/er").mkdir(parents=True)
    assert ("/deep", ["er"], []) in list(image.walk())
    assert list(image.walk(topdown=False))[-1][0] == "/"


def test_errors_have_numbers(image, tmp_path):
    with pytest.raises(FileNotFoundError) as missing:
        image.stat("/missing")
    assert missing.value.filename == "/missing"
    with pytest.raises(IsADirectoryError):
        image.open("/", "rb")
    with pytest.raises(FileExistsError):
        image.mkdir("/lost+found")
    with pytest.raises(OSError) as none:
        image.getxattr("/", "user.none")
    assert none.value.errno == errno.ENODATA
    with pytest.raises(FileNotFoundError):
        platfs.Image(tmp_path / "missing.img")
    with pytest.raises(OSError):
        platfs.Image(io.BytesIO(b"no image" * 1000))
    with pytest.raises(ValueError):
        image.open("/a", "rw")


def test_files_are_those_of_io(image):
    with image.open("/a", "wb") as file:
        assert isinstance(file, io.BufferedWriter)
        file.write(b"0123456789")
    with image.open("/a", "rb") as file:
        assert isinstance(file, io.BufferedReader) and file.read(3) == b"012"
        assert file.seek(-2, os.SEEK_END) == 8 and file.read() == b"89" and file.tell() == 10
    with image.open("/a", "r+b") as file:
        file.seek(4)
        file.write(b"xx")
        file.truncate(8)
    with image.open("/a", "a", encoding="ascii") as file:
        file.write("end\n")
    with image.open("/a") as file:
        assert file.read() == "0123xx67end\n"
    with image.open("/a", "rb", 0) as raw:
        buffer = bytearray(4)
        assert raw.readinto(buffer) == 4 and buffer == b"0123"
        with pytest.raises(io.UnsupportedOperation):
            raw.write(b"no")
    with pytest.raises(ValueError):
        raw.read()
    with pytest.raises(FileExistsError):
        image.open("/a", "xb")


def test_facts_and_attributes(image):
    image.write_bytes("/a", b"x" * 5000)
    image.chmod("/a", 0o640)
    image.chown("/a", 70000, 80000)
    image.utime("/a", ns=(1_000_000_000_123_456_789, 1_100_000_000_000_000_000))
    image.sync()
    found = image.stat("/a")
    assert (found.st_mode, found.st_uid, found.st_gid, found.st_size) == (0o100640, 70000, 80000, 5000)
    assert found.st_atime_ns == 1_000_000_000_123_456_789 and found.st_mtime == 1_100_000_000 and found.st_blocks == 10
    image.setxattr("/a", "user.note", b"seen")
    assert image.listxattr("/a") == ["user.note"] and image.getxattr("/a", "user.note") == b"seen"
    image.removexattr("/a", "user.note")
    assert image.listxattr("/a") == []
    extents = image.extents("/a")
    assert [extent.count for extent in extents] and image.frag("/a") == 1
    entry = next(entry for entry in image.scandir("/") if entry.name == "a")
    assert entry.is_file() and entry.stat().st_size == 5000 and entry.path == "/a"
    assert entry.inode() == found.st_ino


def test_an_image_in_a_file_object(tree):
    held = io.BytesIO(tree.read_bytes())
    with platfs.Image(held) as image:
        assert image.read_bytes("/link") == b"guest\n"
        with pytest.raises(OSError) as refused:
            image.open("/new", "wb")
        assert refused.value.errno == errno.EROFS
    with platfs.Image(held, write=True) as image:
        image.write_bytes("/new", b"in memory")
    assert platfs.check(held).sound
    with platfs.Image(held) as image:
        assert image.read_bytes("/new") == b"in memory"


def test_an_object_that_fails_is_an_oserror(tree):
    class Failing(io.BytesIO):
        fails = False

        def read(self, size=-1):
            if self.fails:
                raise OSError(errno.ENOSPC, "on purpose")
            return super().read(size)

    held = Failing(tree.read_bytes())
    with platfs.Image(held) as image:
        held.fails = True
        with pytest.raises(OSError) as failed:
            image.read_bytes("/data")
        assert failed.value.errno == errno.ENOSPC


def test_threads_read_at_once(tree):
    held = io.BytesIO(tree.read_bytes())
    wanted = bytes(range(256)) * 4096
    for source in (tree, held):
        with platfs.Image(source) as image:
            wrong = []

            def read():
                for _ in range(20):
                    if image.read_bytes("/data") != wanted:
                        wrong.append(1)

            threads = [threading.Thread(target=read) for _ in range(4)]
            [thread.start() for thread in threads]
            [thread.join(60) for thread in threads]
            assert not wrong and not any(thread.is_alive() for thread in threads)


def test_building_shows_progress_and_can_be_ended(tree, tmp_path):
    stages = []
    out = tmp_path / "again.img"
    platfs.build(tmp_path / "tree", out, type="ext2", progress=lambda now: stages.append(now.stage))
    assert stages[0] == "reading" and "data" in stages
    with pytest.raises(FileExistsError):
        platfs.build(tmp_path / "tree", out)

    def end(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        platfs.build(tmp_path / "tree", tmp_path / "ended.img", progress=end)
    assert not (tmp_path / "ended.img").exists()
    built = platfs.build(tmp_path / "tree", out, overwrite=True, exclude=["data"], size=8 << 20)
    assert built.files == 1 and built.bytes == 8 << 20
    assert platfs.build(tmp_path / "tree", out, overwrite=True, size="min").bytes < tree.stat().st_size
    for wrong in ({"type": "ntfs"}, {"size": "large"}, {"size": 0}):
        with pytest.raises(ValueError):
            platfs.build(tmp_path / "tree", tmp_path / "wrong.img", **wrong)


def test_the_check_finds_and_repairs(tree, tmp_path):
    out = tmp_path / "old.img"
    platfs.build(tmp_path / "tree", out, type="ext2")
    assert platfs.check(out).sound
    with open(out, "r+b") as file:
        file.seek(1024 + 12)
        file.write(b"\xff")
    report = platfs.check(out)
    assert not report.sound and len(report.issues) == report.count == 1
    assert report.issues[0].kind and report.issues[0].severity in ("untidy", "wrong")
    assert platfs.check(out, repair=True).sound_now and platfs.check(out).sound


def test_fsspec_reads_out_of_images(tree):
    files = fsspec.filesystem("plat", fo=str(tree))
    assert sorted(files.ls("", detail=False)) == ["data", "etc", "link", "lost+found"]
    assert files.cat("etc/hostname") == b"guest\n" and files.isdir("etc") and not files.exists("missing")
    assert files.info("data")["size"] == 1 << 20 and files.find("etc") == ["etc/hostname"]
    assert files.glob("*/host*") == ["etc/hostname"] and files.du("data") == 1 << 20
    assert files.cat_file("data", start=256, end=259) == b"\0\1\2"
    with fsspec.open(f"plat://etc/hostname::file://{tree}", "rt") as file:
        assert file.read() == "guest\n"


def test_a_closed_image_says_so(image):
    image.close()
    image.close()
    with pytest.raises(ValueError):
        image.stat("/")


def test_stat_is_fast_enough(tree):
    """A bound far below what is measured (see README.md): it finds only what is slower by an order of magnitude."""
    with platfs.Image(tree) as image:
        begun = time.process_time()
        for _ in range(2000):
            image.stat("/etc/hostname")
        assert time.process_time() - begun < 2


def test_the_examples_run(tree, tmp_path):
    import runpy

    examples = os.path.join(os.path.dirname(__file__), "..", "examples")
    make = runpy.run_path(os.path.join(examples, "make_image.py"))["make"]
    out = str(tmp_path / "example.img")
    assert make(str(tmp_path / "tree"), out, "guest-7").files == 2
    changed = runpy.run_path(os.path.join(examples, "forensics.py"))["changed"]
    assert "/etc/hostname" in [str(entry) for entry, _ in changed(out, 1)]
