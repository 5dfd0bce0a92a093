"""How fast the package is: reading a large file, beside `plat cat`, and asking for facts.

    python bench/measure.py [--plat target/release/plat] [--mib 1024]

Figures are of processor time, user and system together, the best of three: other work on the machine changes them little.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import tempfile
import time
from typing import Callable, Optional

import platfs


def best(work: Callable[[], object]) -> float:
    """Processor time of the best of three."""
    found = []
    for _ in range(3):
        begun = time.process_time()
        work()
        found.append(time.process_time() - begun)
    return min(found)


def best_of_command(words: list[str]) -> float:
    """The same of another program, from its start to its end."""
    found = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(found)


def pieces(image: platfs.Image) -> None:
    """Reads in pieces of 1 MiB."""
    with image.open("/large", "rb") as file:
        while file.read(1 << 20):
            pass


def unbuffered(image: platfs.Image) -> None:
    """Reads in pieces of 1 MiB, without a buffer in front."""
    with image.open("/large", "rb", 0) as file:
        while file.read(1 << 20):
            pass


def into(image: platfs.Image) -> None:
    """Reads into one buffer."""
    buffer = bytearray(1 << 20)
    with image.open("/large", "rb", 0) as file:
        while file.readinto(buffer):
            pass


def copied(image: platfs.Image) -> None:
    """As shutil copies."""
    with image.open("/large", "rb") as file, open(os.devnull, "wb") as to:
        shutil.copyfileobj(file, to)


def copied_unbuffered(image: platfs.Image) -> None:
    """As shutil copies, without a buffer in front."""
    with image.open("/large", "rb", 0) as file, open(os.devnull, "wb") as to:
        shutil.copyfileobj(file, to)


def reading(directory: str, mib: int, plat: Optional[str]) -> None:
    """Reads a large file in the ways of Python, and by `plat cat`."""
    os.mkdir(os.path.join(directory, "tree"))
    with open(os.path.join(directory, "tree/large"), "wb") as file:
        for _ in range(mib):
            file.write(os.urandom(1 << 20))
    path = os.path.join(directory, "large.img")
    platfs.build(os.path.join(directory, "tree"), path)
    shutil.rmtree(os.path.join(directory, "tree"))
    theirs = best_of_command([plat, "cat", path, "/large"]) if plat else None
    if theirs is None:
        print("plat cat: SKIPPED, no --plat")
    else:
        print(f"plat cat: {theirs:.3f} s")
    with platfs.Image(path) as image:
        ways = {
            "read(1 MiB)": pieces,
            "read(1 MiB), buffering=0": unbuffered,
            "readinto": into,
            "copyfileobj": copied,
            "copyfileobj, buffering=0": copied_unbuffered,
        }
        for name, way in ways.items():
            ours = best(lambda: way(image))
            print(f"{name}: {ours:.3f} s" + (f", {theirs / ours:.2f} x of plat cat" if theirs else ""))
        ours = best(lambda: image.read_bytes("/large"))
        print(f"read_bytes: {ours:.3f} s")
    os.remove(path)


def facts(directory: str) -> None:
    """Asks for the facts of 1,000 files again and again."""
    path, count = os.path.join(directory, "facts.img"), 100_000
    with platfs.Image.create(path, 64 << 20) as image:
        image.makedirs("/usr/share/doc")
        for number in range(1000):
            image.write_bytes(f"/usr/share/doc/f{number}", b"x")
    with platfs.Image(path) as image:
        names = [f"/usr/share/doc/f{number % 1000}" for number in range(count)]
        paths = [image / name for name in names]
        ways: dict[str, Callable[[], object]] = {
            "Image.stat": lambda: [image.stat(name) for name in names],
            "Path.stat": lambda: [one.stat() for one in paths],
            "scandir, then stat of each": lambda: [
                entry.stat() for _ in range(count // 1000) for entry in image.scandir("/usr/share/doc")
            ],
            "scandir(stat=True)": lambda: [
                entry.stat() for _ in range(count // 1000) for entry in image.scandir("/usr/share/doc", stat=True)
            ],
        }
        for name, way in ways.items():
            print(f"{name}: {count / best(way):,.0f} a second")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plat", help="the command to compare with")
    parser.add_argument("--mib", type=int, default=1024, help="size of the large file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        reading(place, options.mib, options.plat)
        facts(place)
