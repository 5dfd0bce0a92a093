"""A program works in an image as in any directory, and keeps a copy of it as it was before.

    python mount_image.py disk.img /mnt before.img
"""

import os
import sys

import platfs


def work(image: str, directory: str, snapshot: str) -> int:
    with platfs.mount(image, directory, noatime=True) as mounted:
        mounted.snapshot(snapshot)
        with open(os.path.join(directory, "note"), "w") as note:
            note.write("hello\n")
        return int(mounted.stats()["requests"]["create"]["count"])


if __name__ == "__main__":
    print(work(*sys.argv[1:4]), "files made")
