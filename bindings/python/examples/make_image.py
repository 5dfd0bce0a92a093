"""An image of a directory with a file of its own in it, checked before it is used.

    python make_image.py rootfs disk.img guest-7
"""

import sys

import platfs


def make(source: str, out: str, name: str) -> platfs.Built:
    built = platfs.build(source, out, label="root", overwrite=True)
    with platfs.Image(out, write=True) as image:
        image.makedirs("/etc")
        (image / "etc/hostname").write_text(name + "\n")
    report = platfs.check(out)
    if not report.sound:
        raise SystemExit(f"{out}: {report.issues}")
    return built


if __name__ == "__main__":
    made = make(*sys.argv[1:4])
    print(f"{made.files} files, {made.bytes >> 20} MiB")
