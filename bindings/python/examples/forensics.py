"""What a forensic reader does first: everything changed in the last days before the image was taken, with its owner.

    python forensics.py disk.img 3
"""

from __future__ import annotations

import os
import sys
from datetime import datetime, timedelta, timezone

import platfs


def changed(source: platfs.Source, days: float) -> list[tuple[str, os.stat_result]]:
    with platfs.Image(source) as image:
        directories = [path for path, _, _ in image.walk()]
        files = [(entry.path, entry.stat(follow_symlinks=False))
                 for path in directories for entry in image.scandir(path, stat=True)]
    newest = max((facts.st_mtime for _, facts in files), default=0.0)
    since = datetime.fromtimestamp(newest, timezone.utc) - timedelta(days=days)
    return [(path, facts) for path, facts in files if facts.st_mtime >= since.timestamp()]


if __name__ == "__main__":
    for path, facts in changed(sys.argv[1], float(sys.argv[2])):
        print(f"{datetime.fromtimestamp(facts.st_mtime, timezone.utc):%F %T} {facts.st_uid:6} {facts.st_size:10} {path}")
