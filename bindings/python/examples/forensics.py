"""What a forensic reader does first: everything changed in the last days before the image was taken, with its owner.

    python forensics.py disk.img 3
"""

import sys
from datetime import datetime, timedelta, timezone

import platfs


def changed(path: str, days: float):
    with platfs.Image(path) as image:
        files = [(entry, entry.lstat()) for entry in image.path().rglob("*")]
        newest = max((facts.st_mtime for _, facts in files), default=0)
        since = datetime.fromtimestamp(newest, timezone.utc) - timedelta(days=days)
        return [(entry, facts) for entry, facts in files if facts.st_mtime >= since.timestamp()]


if __name__ == "__main__":
    for entry, facts in changed(sys.argv[1], float(sys.argv[2])):
        print(f"{datetime.fromtimestamp(facts.st_mtime, timezone.utc):%F %T} {facts.st_uid:6} {facts.st_size:10} {entry}")
