"""What the package promises, on images of its own."""

import errno
import gc
import inspect
import io
import os
import shutil
import stat
import struct
import subprocess
import sys
import threading
import time
import warnings

import fsspec
import pytest

import platfs
from platfs import _native


def ask(tool, *words):
    """What a tool of e2fsprogs prints; the test is skipped where there is none."""
    path = shutil.which(tool, path=os.environ["PATH"] + ":/usr/sbin:/sbin")
    if path is None:
        pytest.skip(f"SKIPPED: {tool} is not installed")
    return subprocess.run([path, *map(str, words)], check=True, capture_output=True, text=True).stdout


@pytest.fixture
def image(tmp_path):
    """An image open for writing; e2fsck, where it is, accepts what a test makes of it."""
    path = tmp_path / "made.img"
    with platfs.Image.create(path, 16 << 20, label="made") as image:
        yield image
    e2fsck = shutil.which("e2fsck", path=os.environ["PATH"] + ":/usr/sbin:/sbin")
    if e2fsck:
        subprocess.run([e2fsck, "-fn", path], check=True, stdout=subprocess.DEVNULL)


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
    packed = tmp_path / "disk.img.gz"
    packed.write_bytes(b"\x1f\x8b" + bytes(100_000))
    with pytest.raises(platfs.NotAnImage, match="gzip -dc") as none:
        platfs.Image(packed)
    assert isinstance(none.value, OSError) and none.value.errno == errno.EINVAL
    assert none.value.filename == str(packed)
    image.write_bytes("/full", b"")
    with image.open("/full", "r+b", 0) as file, pytest.raises(OSError) as full:
        file.seek(1 << 50)
        file.write(b"x")
    assert full.value.filename == "/full"
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


def test_what_an_object_raises_is_raised(tree):
    class Failing(io.BytesIO):
        raises = None

        def read(self, size=-1):
            if self.raises:
                raise self.raises
            return super().read(size)

    held = Failing(tree.read_bytes())
    with platfs.Image(held) as image:
        held.raises = KeyError("on purpose")
        with pytest.raises(KeyError) as failed:
            image.read_bytes("/data")
        assert failed.value is held.raises
        held.raises = KeyboardInterrupt()
        with pytest.raises(KeyboardInterrupt):
            image.read_bytes("/data")


def test_a_panic_is_an_oserror():
    with pytest.raises(OSError, match="panicked") as failed:
        _native.panics()
    assert failed.value.errno == errno.EIO


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


def test_other_threads_run_while_one_reads(tmp_path):
    """No thread gives Python's lock away by itself here: another one runs only if a call does."""
    path = tmp_path / "large.img"
    with platfs.Image.create(path, 128 << 20) as image:
        image.write_bytes("/large", b"x" * (64 << 20))
    inside, seen, old = threading.Event(), [], sys.getswitchinterval()

    def read():
        for _ in range(5):
            inside.set()
            image.read_bytes("/large")
            inside.clear()

    with platfs.Image(path) as image:
        sys.setswitchinterval(1000)
        try:
            thread = threading.Thread(target=read)
            thread.start()
            while thread.is_alive() and not seen:
                seen += [1] if inside.is_set() else []
                time.sleep(0.0001)
        finally:
            sys.setswitchinterval(old)
        thread.join()
    assert seen


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
    assert report.issues[0].kind and report.issues[0].severity == platfs.Severity.UNTIDY
    assert report.issues[0].safe and report.issues[0].means and "free blocks" in report.issues[0].title
    assert platfs.check(out, limit=0).issues == [] and platfs.check(out, limit=0).count == 1
    assert platfs.check(out, repair=True).sound_now and platfs.check(out).sound


def test_access_lists(image, tmp_path):
    image.mkdir("/d")
    image.write_bytes("/d/f", b"")
    assert image.getacl("/d/f") == []
    entry, tag = platfs.AclEntry, platfs.Tag
    wanted = [entry(tag.USER_OBJ, 6), entry(tag.USER, 4, 1000), entry(tag.GROUP_OBJ, 4), entry(tag.MASK, 4), entry(tag.OTHER, 0)]
    image.setacl("/d/f", reversed(wanted))
    assert image.getacl("/d/f") == wanted and str(wanted[1]) == "user:1000:r--"
    image.setacl("/d", wanted, default=True)
    assert image.getacl("/d", default=True) == wanted
    image.setacl("/d", [], default=True)
    image.setacl("/d", [], default=True)
    assert image.getacl("/d", default=True) == []
    with pytest.raises(ValueError):
        image.setacl("/d/f", [entry(tag.USER, 4)])
    image.close()
    assert "system.posix_acl_access" in ask("debugfs", "-R", "ea_list /d/f", tmp_path / "made.img")


def test_other_verbs(image):
    image.mknod("/null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    image.mknod("/pipe", 0o600 | stat.S_IFIFO)
    found = image.stat("/null")
    assert stat.S_ISCHR(found.st_mode) and found.st_rdev == os.makedev(1, 3)
    with pytest.raises(OSError):
        image.open("/pipe", "rb")
    with pytest.raises(ValueError):
        image.mknod("/link", stat.S_IFLNK)
    path = image / "t.tar.gz"
    path.touch()
    path.touch()
    assert path.suffixes == [".tar", ".gz"] and path.with_suffix(".xz").name == "t.tar.xz" and path.samefile("/t.tar.gz")
    with pytest.raises(FileExistsError):
        path.touch(exist_ok=False)
    image.truncate("/t.tar.gz", 5)
    assert path.read_bytes() == bytes(5) and path.replace("/u").stat().st_size == 5
    before = time.time_ns() - 600 * 10**9
    assert before < image.birthtime_ns("/u") < time.time_ns() + 600 * 10**9
    with pytest.raises(OSError):
        image.open("/u", "r+b", 0).truncate(-1)


def test_globs_are_those_of_pathlib(image, tmp_path):
    for name in ("a/b/c.txt", "a/d.txt", "a/b/e.log", "f.txt"):
        for root in (image.path(), tmp_path / "tree"):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).touch()
    image.rmdir("/lost+found")
    for pattern in ("*", "**/*.txt", "a/*", "*/b", "a/**", "a/b/c.txt", "**/b/*.log", "?.txt", "missing/*", "f.txt/*"):
        theirs = sorted("/" + str(path.relative_to(tmp_path / "tree")) for path in (tmp_path / "tree").glob(pattern))
        ours = sorted(str(path) for path in image.path().glob(pattern))
        if pattern != "a/**":  # Since Python 3.13 it means files, too.
            assert ours == theirs, pattern
    assert len(list(image.path().rglob("*"))) == 6


def test_walks_end(image, tmp_path):
    image.makedirs("/a/" + "d/" * 300)
    image.write_bytes("/a/f", b"")
    assert len(list(image.walk("/a"))) == 301 and len(list(image.walk("/a", topdown=False))) == 301
    pruned = []
    for path, directories, _ in image.walk("/"):
        pruned.append(path)
        directories[:] = [name for name in directories if name != "a"]
    assert sorted(pruned) == ["/", "/lost+found"]


def test_a_directory_in_itself_is_an_error(tmp_path):
    path = tmp_path / "loop.img"
    with platfs.Image.create(path, 16 << 20) as image:
        image.makedirs("/a/b")
    ask("debugfs", "-w", "-R", "link a a/b/again", path)
    with platfs.Image(path) as image:
        with pytest.raises(OSError) as found:
            list(image.walk())
        assert found.value.errno == errno.EUCLEAN and found.value.filename == "/a/b/again"


def test_many_facts_at_once(image):
    for number in range(50):
        image.write_bytes(f"/f{number}", b"x" * number)
    image.symlink("f7", "/link")
    quick = {entry.name: entry for entry in image.scandir("/", stat=True)}
    assert {entry.name for entry in image.scandir()} == set(quick) == set(image.listdir())
    for name, entry in quick.items():
        assert entry.stat(follow_symlinks=False) == image.lstat("/" + name)
        assert entry.stat() == image.stat("/" + name)
    assert quick["link"].stat().st_size == 7 and quick["link"].is_file() and image.stat(quick["f1"]).st_size == 1


def test_fragmentation_is_that_of_the_tools(image, tmp_path):
    for number in range(0, 40):
        image.write_bytes(f"/f{number}", b"x" * 40000)
        image.sync()
    for number in range(0, 40, 2):
        image.remove(f"/f{number}")
    image.sync()
    with image.open("/pieces", "wb") as file:
        for block in range(0, 40, 2):
            file.seek(block * 4096)
            file.write(b"y")
    image.sync()
    whole = image.fragmentation()
    assert whole.files == 21 and whole.unreadable == 0 and whole.extents >= whole.files_with_blocks == 21
    assert whole.extents_per_file == whole.extents / 21 and image.fragmentation("/f1").files == 1
    assert sum(image.frag(f"/f{number}") for number in range(1, 40, 2)) + image.frag("/pieces") == whole.extents
    assert len(image.fragmentation(worst=0).worst) == 0
    free = image.freefrag()
    assert sum(one.blocks for one in free.histogram) == free.free_blocks
    assert free.shortest_blocks <= free.mean_blocks <= free.longest_blocks and free.block_size in (1024, 4096)
    image.close()
    text = ask("e2freefrag", tmp_path / "made.img")
    assert f"Free blocks: {free.free_blocks} " in text and f"Num. free extent: {free.free_extents}\n" in text


def test_a_part_of_a_disk(tree, tmp_path):
    disk = tmp_path / "disk.img"
    inner = tree.read_bytes()
    disk.write_bytes(bytes(1 << 20) + inner + bytes(1 << 20))
    part = {"offset": 1 << 20, "length": len(inner)}
    with platfs.Image(disk, write=True, **part) as image:
        image.write_bytes("/new", b"inside")
    assert platfs.check(disk, **part).sound
    with disk.open("rb") as file, platfs.Image(file, **part) as image:
        assert image.read_bytes("/new") == b"inside"
    with pytest.raises(OSError):
        platfs.Image(disk)
    for wrong in ({"offset": 1 << 40}, {"length": 1 << 40}):
        with pytest.raises(OSError):
            platfs.Image(disk, **wrong)
    with pytest.raises(ValueError):
        platfs.Image(disk, offset=-1)
    with pytest.raises(IsADirectoryError):
        platfs.Image(tmp_path)


def test_volumes_of_a_store(tree, tmp_path):
    store = f"file://{tmp_path}/store"
    pushed = platfs.push(tree, f"{store}#tree")
    assert pushed.size == tree.stat().st_size and pushed.new_chunks == pushed.chunks > 0 and pushed.sent_bytes > 0
    assert platfs.push(tree, f"{store}#again").new_chunks == 0
    with pytest.raises(FileExistsError):
        platfs.push(tree, f"{store}#again")
    platfs.push(tree, f"{store}#again", replace=True)
    with platfs.Image(f"{store}#tree", cache=tmp_path / "cache", cache_size=1 << 20) as image:
        assert image.read_bytes("/link") == b"guest\n"
    with platfs.Image(f"{store}#tree", write=True) as image:
        image.write_bytes("/new", b"in the store")
        with pytest.raises(OSError) as busy:
            platfs.Image(f"{store}#tree", write=True)
        assert busy.value.errno == errno.EBUSY
    with platfs.Image(f"{store}#tree") as image:
        assert image.read_bytes("/new") == b"in the store"
    assert platfs.check(f"{store}#tree").sound
    with platfs.Image.create(f"{store}#empty", 16 << 20) as image:
        assert image.listdir() == ["lost+found"]
    with pytest.raises(FileNotFoundError):
        platfs.Image(f"{store}#missing")
    for wrong in (store, "s3://bucket/prefix#name"):
        with pytest.raises(OSError):
            platfs.Image(wrong)


def test_open_files_keep_a_closed_image(tmp_path):
    path = tmp_path / "kept.img"
    with platfs.Image.create(path, 16 << 20) as image:
        file = image.open("/a", "wb")
        file.write(b"late")
    file.close()
    assert platfs.check(path).sound
    with platfs.Image(path) as image:
        assert image.read_bytes("/a") == b"late"


def mbr(path, start, size):
    """A disk with one partition, in bytes."""
    entry = struct.pack("<B3xB3xII", 0, 0x83, start >> 9, size >> 9)
    path.write_bytes(bytes(446) + entry + bytes(48) + b"\x55\xaa")
    os.truncate(path, start + size)


def test_parts_of_disks(tree, tmp_path):
    disk = tmp_path / "disk.img"
    mbr(disk, 1 << 20, 16 << 20)
    assert platfs.partitions(disk) == [platfs.Partition(1, 1 << 20, 16 << 20, None)]
    part = f"{disk}@part1"
    assert platfs.build(tmp_path / "tree", part, label="part").bytes == 16 << 20
    assert platfs.check(part).sound and disk.stat().st_size == 17 << 20
    with platfs.Image(part, write=True) as image:
        assert image.read_bytes("/etc/hostname") == b"guest\n"
        image.write_bytes("/more", b"more")
    for same in ({"source": f"{disk}@1M"}, {"source": disk, "offset": 1 << 20, "length": 16 << 20}):
        with platfs.Image(**same) as image:
            assert image.read_bytes("/more") == b"more"
    for number, name in ((6, "part2"), (6, "part:root"), (6, "32M"), (22, "1000")):
        with pytest.raises(OSError) as raised:
            platfs.Image(f"{disk}@{name}")
        assert raised.value.errno == number and raised.value.filename == f"{disk}@{name}"
    with pytest.raises(FileNotFoundError):
        platfs.Image(f"{disk}@nothing")
    with pytest.raises(ValueError):
        platfs.Image.create(part, 16 << 20)
    with pytest.raises(OSError) as raised:
        platfs.partitions(part)
    assert raised.value.errno == 22
    # A file that really has such a name.
    os.rename(disk, part)
    assert len(platfs.partitions(part)) == 1


def test_build_options(tree, tmp_path):
    out, wanted = tmp_path / "options.img", "12345678-1234-5678-1234-567812345678"
    options = {"overwrite": True, "block_size": 1024, "inodes": 64, "reserved_percent": 0, "uuid": wanted}
    options |= {"time": 1_000_000_000, "owner": (7, 8), "prefix": "below", "keep_times": True, "sync": True}
    assert platfs.build(tmp_path / "tree", out, **options).block_size == 1024
    first = out.read_bytes()
    platfs.build(tmp_path / "tree", out, **options)
    assert first == out.read_bytes()
    with platfs.Image(out) as image:
        found = image.stat("/below/data")
        assert (found.st_uid, found.st_gid, found.st_mtime) == (7, 8, 1_000_000_000)
    assert wanted in ask("dumpe2fs", "-h", out)


def test_names_that_are_no_text(image):
    name = os.fsdecode(b"/\xff\xfe")
    image.write_bytes(name, b"x")
    assert b"\xff\xfe" in [os.fsencode(found) for found in image.listdir()]
    assert image.read_bytes(b"/\xff\xfe") == b"x" and image.path(name).exists()
    for wrong in ("/a\0b", "/" + "n" * 256):
        with pytest.raises(OSError):
            image.write_bytes(wrong, b"")


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


def test_all_that_is_public_is_described():
    missing = []
    for name in platfs.__all__:
        thing = getattr(platfs, name)
        if name in ("Source", "__version__"):
            continue
        if inspect.isclass(thing):
            own = {key: value for key, value in vars(thing).items() if not key.startswith("_")}
            missing += [f"{name}.{key}" for key, value in own.items() if callable(value) and not inspect.getdoc(value)]
        if not inspect.getdoc(thing):
            missing.append(name)
    assert not missing


def test_the_types_hold(tmp_path):
    """The package, the examples and the stub of the native half, by mypy."""
    pytest.importorskip("mypy", reason="SKIPPED: mypy is not installed")
    here = os.path.join(os.path.dirname(__file__), "..")
    settings = os.path.join(here, "pyproject.toml")
    mypy = ["mypy", "--config-file", settings, "--cache-dir", str(tmp_path / "cache")]
    words = [[*mypy, "-p", "platfs"], [*mypy, os.path.join(here, "examples"), os.path.join(here, "bench")]]
    words += [["mypy.stubtest", "--mypy-config-file", settings, "platfs._native"]]
    for word in words:
        done = subprocess.run([sys.executable, "-m", *word], capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr


def blocks(path):
    """The examples in Python of a page."""
    with open(path) as page:
        return [block.split("```")[0] for block in page.read().split("```python\n")[1:]]


def test_the_examples_of_the_pages_run(tmp_path, monkeypatch):
    here = os.path.join(os.path.dirname(__file__), "..")
    pages = [os.path.join(here, "README.md"), os.path.join(here, "../../docs/bindings.md")]
    for number, page in enumerate(pages):
        if not os.path.exists(page):
            continue
        place = tmp_path / str(number)
        (place / "rootfs/etc").mkdir(parents=True)
        (place / "rootfs/etc/os-release").write_text("NAME=guest\n")
        (place / "rootfs/etc/a.conf").write_text("a=1\n")
        platfs.build(place / "rootfs", place / "disk.img")
        monkeypatch.chdir(place)
        found = blocks(page)
        assert found
        for block in found:
            for made in ("new.img", "rootfs.img"):
                if os.path.exists(made):
                    os.remove(made)
            exec(compile(block, page, "exec"), {"__name__": "page"})


def can_mount():
    return os.geteuid() == 0 and os.path.exists("/dev/fuse")


@pytest.fixture
def mounted(tmp_path):
    """A directory with a mount of an image of 64 MiB, and the image."""
    if not can_mount():
        pytest.skip("SKIPPED: needs root and /dev/fuse")
    image, directory = tmp_path / "mounted.img", tmp_path / "m"
    platfs.Image.create(image, 64 << 20).close()
    directory.mkdir()
    with platfs.mount(image, directory, rw=True, commit=30) as mount:
        yield mount, directory, image
    e2fsck = shutil.which("e2fsck", path=os.environ["PATH"] + ":/usr/sbin:/sbin")
    if e2fsck:
        subprocess.run([e2fsck, "-fn", image], check=True, stdout=subprocess.DEVNULL)


def test_a_mount_is_worked_on_while_it_is_used(mounted, tmp_path):
    mount, directory, image = mounted
    (directory / "a").mkdir()
    (directory / "a/file").write_bytes(b"x" * 100000)
    assert mount.copy("a", "b") == platfs.Done(1, 1, 100000, 0)
    assert (directory / "b/file").read_bytes() == b"x" * 100000
    assert mount.remove("/a").files == 1 and os.listdir(directory / "b") == ["file"]
    mount.sync()
    mount.snapshot(tmp_path / "snapshot.img")
    with platfs.Image(tmp_path / "snapshot.img") as snapshot:
        assert snapshot.listdir("/b") == ["file"]
    assert mount.stats()["writable"] is True
    least = mount.least_size()
    assert least.bytes_before == 64 << 20 and least.bytes < 32 << 20
    assert mount.resize(32 << 20).bytes == 32 << 20 == image.stat().st_size
    assert mount.defragment()["failed"] == 0 and mount.trim() > 0
    mount.quota_on("user")
    mount.set_quota("user", 1000, soft_bytes=1 << 20, hard_inodes=7)
    mount.set_graces("user", bytes=60, inodes=70)
    quota = platfs.Live(directory / "b").quota("user")
    assert quota.kinds == ["user"] and (quota.grace_bytes, quota.grace_inodes) == (60, 70)
    [record] = [record for record in quota.records if record.id == 1000]
    assert (record.soft_bytes, record.hard_bytes, record.hard_inodes, record.bytes) == (1 << 20, 0, 7, 0)
    assert mount.recount_quota() == 0
    mount.quota_off("user")
    with pytest.raises(OSError, match="does not count"):
        mount.quota()


def test_errors_of_mounts_have_numbers_and_names(mounted, tmp_path):
    mount, directory, image = mounted
    with pytest.raises(FileNotFoundError) as missing:
        mount.remove("missing")
    assert missing.value.filename == str(directory / "missing")
    with pytest.raises(OSError) as busy:
        platfs.mount(image, tmp_path)
    assert busy.value.errno == errno.EBUSY and busy.value.filename == str(image)
    with pytest.raises(FileExistsError) as taken:
        mount.snapshot(image)
    assert taken.value.filename == str(image)
    with pytest.raises(OSError) as other:
        platfs.Live(tmp_path).stats()
    assert other.value.errno == errno.ENOTTY and other.value.filename == str(tmp_path)
    with pytest.raises(OSError) as least:
        mount.resize(4096)
    assert least.value.errno in (errno.EINVAL, errno.ENOSPC)
    with pytest.raises(FileNotFoundError):
        platfs.mount(tmp_path / "missing.img", tmp_path)
    with pytest.raises(ValueError, match="frobnicate"):
        platfs.mount(image, directory, frobnicate=True)
    with pytest.raises(ValueError, match="comma"):
        platfs.mount(image, directory, fsname="a,suid")
    held = open(directory / "held", "w")
    with pytest.raises(OSError) as held_open:
        mount.unmount()
    assert held_open.value.errno == errno.EBUSY and (directory / "held").exists()
    held.close()
    mount.unmount()
    mount.unmount()
    assert os.listdir(directory) == []


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_mount_ends_with_its_program_and_no_other(mounted, tmp_path):
    mount, directory, image = mounted
    assert in_a_child(mount.unmount) == 0 and os.listdir(directory) == ["lost+found"]
    other, place = tmp_path / "other.img", tmp_path / "n"
    platfs.Image.create(other, 16 << 20).close()
    place.mkdir()
    program = f"import platfs; m = platfs.mount({str(other)!r}, {str(place)!r}); open({str(place / 'x')!r}, 'w')"
    subprocess.run([sys.executable, "-c", program], check=True)
    assert os.listdir(place) == []
    with platfs.Image(other) as closed:
        assert closed.exists("/x")
    with pytest.raises(ZeroDivisionError), platfs.mount(other, place):
        os.listdir(place)[1 // 0]
    assert os.listdir(place) == []
    with pytest.warns(RuntimeWarning, match="not cleanly unmounted|errors|reading only"):
        with open(other, "r+b") as raw:
            raw.seek(1024 + 0x64)
            raw.write(struct.pack("<I", 1 << 31))
        with platfs.mount(other, place):
            assert not os.access(place / "x", os.W_OK) or os.statvfs(place).f_flag & os.ST_RDONLY


def test_an_image_has_one_user_who_writes(mounted, tree, tmp_path):
    """The same door as the command's: mounts and loop devices are seen, not only locks."""
    mount, directory, image = mounted
    for again in (lambda: platfs.Image(image, write=True), lambda: platfs.check(image, repair=True)):
        with pytest.raises(OSError) as used:
            again()
        assert used.value.errno == errno.EBUSY and str(directory) in str(used.value)
    with pytest.raises(OSError) as replaced:
        platfs.build(tmp_path / "tree", image, overwrite=True)
    assert str(directory) in str(replaced.value)
    losetup = shutil.which("losetup", path=os.environ["PATH"] + ":/usr/sbin:/sbin")
    if losetup is None:
        return
    place = tmp_path / "kernel"
    place.mkdir()
    if subprocess.run(["mount", "-o", "loop", tree, place], capture_output=True).returncode:
        return
    try:
        with pytest.raises(OSError) as used:
            platfs.Image(tree, write=True)
        assert used.value.errno == errno.EBUSY and "kernel has it mounted" in str(used.value)
    finally:
        subprocess.run(["umount", place], check=True)


def test_the_examples_run(tree, tmp_path):
    import runpy

    examples = os.path.join(os.path.dirname(__file__), "..", "examples")
    make = runpy.run_path(os.path.join(examples, "make_image.py"))["make"]
    out = str(tmp_path / "example.img")
    assert make(str(tmp_path / "tree"), out, "guest-7").files == 2
    changed = runpy.run_path(os.path.join(examples, "forensics.py"))["changed"]
    assert "/etc/hostname" in [path for path, _ in changed(out, 1)]
    if can_mount():
        work = runpy.run_path(os.path.join(examples, "mount_image.py"))["work"]
        (tmp_path / "m").mkdir()
        assert work(out, str(tmp_path / "m"), str(tmp_path / "before.img")) == 1
        with platfs.Image(out) as image, platfs.Image(tmp_path / "before.img") as before:
            assert image.exists("/note") and not before.exists("/note")


def test_a_path_of_an_image_is_none_of_the_host(image, tmp_path):
    host = tmp_path / "host"
    (host / "keep").mkdir(parents=True)
    (host / "keep/precious").write_text("data of the host")
    image.makedirs(str(host))
    path = image / str(host)
    (path / "inside").write_text("of the image")
    entry = next(iter(image.scandir(str(host))))
    for same in (path, path / "inside", entry):
        assert not isinstance(same, os.PathLike)
        for call in (os.fspath, os.listdir, os.stat, os.unlink, shutil.rmtree, open):
            with pytest.raises(TypeError):
                call(same)
    assert image.stat(entry).st_size == len("of the image")
    assert (host / "keep/precious").read_text() == "data of the host"
    image.rmtree(path)
    assert host.is_dir() and not path.exists()
    other = platfs.Image.create(tmp_path / "other.img", 16 << 20)
    with other, pytest.raises(OSError) as crossed:
        (image / "lost+found").rename(other / "lost+found")
    assert crossed.value.errno == errno.EXDEV
    with pytest.raises(OSError) as linked:
        (image / "new").hardlink_to(other / "lost+found")
    assert linked.value.errno == errno.EXDEV


def in_a_child(work):
    """What a call does in a process that is forked off: 0, or the number of its OSError."""
    child = os.fork()
    if child == 0:
        code = 0
        try:
            work()
        except OSError as error:
            code = error.errno or 255
        except BaseException:
            code = 254
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.skipif(sys.version_info < (3, 9), reason="os.waitstatus_to_exitcode")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_neither_writes_nor_closes_what_it_inherits(image, tree):
    image.write_bytes("/before", b"b")
    file = image.open("/before", "r+b", 0)
    assert in_a_child(lambda: image.write_bytes("/child", b"c")) == errno.EBADF
    assert in_a_child(lambda: file.write(b"c")) == errno.EBADF
    assert in_a_child(lambda: image.listdir()) == errno.EBADF
    assert in_a_child(lambda: (file.close(), image.close(), image.__del__())) == 0
    file.write(b"parent")
    file.close()
    image.write_bytes("/after", b"a")
    assert sorted(image.listdir()) == ["after", "before", "lost+found"] and image.read_bytes("/before") == b"parent"
    with platfs.Image(tree) as shared:
        assert in_a_child(lambda: shared.read_bytes("/data")) == 0
    with open(tree, "rb") as held, platfs.Image(held) as lent:
        assert in_a_child(lambda: lent.read_bytes("/data")) == errno.EBADF


def test_what_nobody_closed_is_warned_of(tree):
    with pytest.warns(ResourceWarning, match="image was not closed"):
        image = platfs.Image(tree)
        del image
        gc.collect()
    with platfs.Image(tree) as image:
        for mode in (("rb", 0), ("rb",), ("r",)):
            with pytest.warns(ResourceWarning, match="unclosed file"):
                file = image.open("/etc/hostname", *mode)
                del file
                gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with platfs.Image(tree) as image, image.open("/etc/hostname") as file:
            file.read()
        del image, file
        gc.collect()


def test_paths_are_resolved_inside_of_the_image(image):
    image.makedirs("/a/b", exist_ok=False)
    with pytest.raises(FileExistsError):
        image.makedirs("/a/b", exist_ok=False)
    image.makedirs("/a/b")
    image.makedirs("/a/private", 0o700)
    assert image.stat("/a/private").st_mode & 0o777 == 0o700 and image.stat("/a").st_mode & 0o777 == 0o755
    image.symlink("../a/b", "/a/relative")
    image.symlink("/a/relative", "/absolute")
    image.symlink("circle", "/circle")
    image.write_bytes("/a/b/file", b"")
    assert (image / "absolute/../b/file").resolve(strict=True) == image / "a/b/file"
    assert (image / "absolute/missing").resolve() == image / "a/b/missing"
    assert (image / "../../a").resolve() == image / "a" and image.path("/a").absolute() == image / "a"
    with pytest.raises(FileNotFoundError):
        (image / "missing").resolve(strict=True)
    with pytest.raises(OSError) as circle:
        (image / "circle").resolve()
    assert circle.value.errno == errno.ELOOP
