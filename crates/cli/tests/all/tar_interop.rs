//! Archives by GNU tar and Python, read by us; archives by us, read by GNU tar and Python. The judge is the
//! directory they were made from, read as a source of its own.

use crate::trees::{ALL, Clock, Rules, assert_same, facts, read};
use platfs_image::archive::{Entry, EntryKind, Run, Times, Writer, writer};
use platfs_image::source::catalogue::Stamps;
use platfs_image::source::{Catalogue, NodeId, NodeKind};
use std::collections::HashMap;
use std::fs;
use std::path::Path;
use testkit::scratch::Scratch;
use testkit::{odd, tool};

fn odd_tree(name: &str, options: &odd::Options) -> Scratch {
    let scratch = Scratch::new(name);
    fs::create_dir(scratch.join("tree")).unwrap();
    odd::make(&scratch.join("tree"), options);
    scratch
}

fn tar(scratch: &Scratch, archive: &str, options: &[&str]) {
    let mut command = tool::command("tar");
    command.args(["--numeric-owner", "--sort=name"]).args(options).arg("-cf").arg(scratch.join(archive));
    tool::run(command.arg("-C").arg(scratch.join("tree")).arg("."));
}

#[test]
fn gnu_tars_pax_archives_are_the_directory() {
    if !tool::have_tools("gnu_tars_pax_archives_are_the_directory", &["tar"]) {
        return;
    }
    let scratch = odd_tree("interop-pax", &odd::Options { many: 500, ..odd::Options::default() });
    let directory = read(&scratch.join("tree"));
    let all = ["--format=posix", "--xattrs", "--xattrs-include=*", "--acls", "--sparse"];
    for version in ["0.0", "0.1", "1.0"] {
        let version = format!("--sparse-version={version}");
        tar(&scratch, "a.tar", &[&all[..], &[&version]].concat());
        assert_same(&directory, &read(&scratch.join("a.tar")), ALL);
    }
    // Without maps, and without the giants that would be written out.
    let scratch = odd_tree("interop-dense", &odd::Options::modest());
    tar(&scratch, "a.tar", &all[..4]);
    let directory = read(&scratch.join("tree"));
    assert_same(&directory, &read(&scratch.join("a.tar")), Rules { holes: false, ..ALL });
}

#[test]
fn packed_archives_are_the_directory() {
    if !tool::have_tools("packed_archives_are_the_directory", &["tar", "gzip", "xz", "zstd"]) {
        return;
    }
    let scratch = odd_tree("interop-packed", &odd::Options::modest());
    let directory = read(&scratch.join("tree"));
    for packing in ["--gzip", "--xz", "--zstd"] {
        tar(
            &scratch,
            "a",
            &["--format=posix", "--xattrs", "--xattrs-include=*", "--acls", "--sparse", packing],
        );
        assert_same(&directory, &read(&scratch.join("a")), ALL);
    }
}

#[test]
fn gnu_and_oldgnu_archives_are_the_directory() {
    if !tool::have_tools("gnu_and_oldgnu_archives_are_the_directory", &["tar"]) {
        return;
    }
    let scratch = odd_tree("interop-gnu", &odd::Options { many: 100, ..odd::Options::default() });
    let directory = read(&scratch.join("tree"));
    for format in ["gnu", "oldgnu"] {
        tar(&scratch, "a.tar", &[&format!("--format={format}"), "--sparse"]);
        let rules = Rules { clock: Clock::Seconds, xattrs: false, ..ALL };
        assert_same(&directory, &read(&scratch.join("a.tar")), rules);
    }
}

#[test]
fn pythons_archives_are_the_directory() {
    if !tool::have_tools("pythons_archives_are_the_directory", &["python3"]) {
        return;
    }
    let scratch = odd_tree("interop-python", &odd::Options::modest());
    let directory = read(&scratch.join("tree"));
    for format in ["PAX", "GNU"] {
        let script = "import sys, tarfile\n\
            t = tarfile.open(sys.argv[2], 'w', format=getattr(tarfile, sys.argv[3] + '_FORMAT'))\n\
            t.add(sys.argv[1], '.')\n\
            t.close()\n";
        let mut command = tool::command("python3");
        command.args(["-c", script]).arg(scratch.join("tree")).arg(scratch.join("a.tar")).arg(format);
        tool::run(&mut command);
        // Python rounds times through floating point, and keeps neither attributes nor holes.
        let rules = Rules {
            clock: Clock::Never,
            xattrs: false,
            holes: false,
            sockets: false,
            root: true,
            linked: &[NodeKind::File],
        };
        assert_same(&directory, &read(&scratch.join("a.tar")), rules);
    }
}

/// Writes a catalogue as an archive.
fn pack(catalogue: &Catalogue, archive: &Path) {
    let out = std::io::BufWriter::new(fs::File::create(archive).unwrap());
    let mut writer = Writer::new(out);
    writer.entry(&entry(catalogue, catalogue.root(), b"./")).unwrap();
    let mut above = vec![b"./".to_vec()];
    let mut firsts: HashMap<NodeId, Vec<u8>> = HashMap::new();
    let mut reader = catalogue.reader();
    for step in catalogue.walk() {
        above.truncate(step.depth);
        let mut path = [&above[step.depth - 1], step.name].concat();
        let kind = catalogue.metadata(step.node).kind;
        if kind == NodeKind::Directory {
            path.push(b'/');
        }
        above.push(path.clone());
        if kind == NodeKind::Socket {
            continue;
        }
        let mut entry = entry(catalogue, step.node, &path);
        match firsts.get(&step.node) {
            Some(first) => {
                entry = Entry {
                    kind: EntryKind::HardLink,
                    target: first.clone(),
                    size: 0,
                    runs: Vec::new(),
                    ..entry
                };
                writer.entry(&entry).unwrap();
                continue;
            }
            None => drop(firsts.insert(step.node, path)),
        }
        writer.entry(&entry).unwrap();
        for run in &entry.runs {
            let mut at = run.file_offset;
            while at < run.file_offset + run.len {
                let mut buf =
                    vec![0; usize::try_from((run.file_offset + run.len - at).min(1 << 20)).unwrap()];
                reader.read_file(step.node, at, &mut buf).unwrap();
                writer.data(&buf).unwrap();
                at += buf.len() as u64;
            }
        }
    }
    writer.finish().unwrap();
}

fn entry(catalogue: &Catalogue, node: NodeId, path: &[u8]) -> Entry {
    let meta = catalogue.metadata(node);
    let runs: Vec<Run> = catalogue
        .extents(node)
        .map(|e| Run { file_offset: e.file_offset, len: e.len, archive_offset: 0 })
        .collect();
    let other = |time| (meta.stamps != Stamps::all(meta.stamps.modified)).then_some(time);
    Entry {
        offset: 0,
        path: path.to_vec(),
        kind: match meta.kind {
            NodeKind::Directory => EntryKind::Directory,
            NodeKind::File => EntryKind::File,
            NodeKind::Symlink => EntryKind::Symlink,
            NodeKind::CharDevice => EntryKind::CharDevice,
            NodeKind::BlockDevice => EntryKind::BlockDevice,
            NodeKind::Fifo | NodeKind::Socket => EntryKind::Fifo,
        },
        target: catalogue.target(node).to_vec(),
        mode: meta.mode,
        uid: meta.ids.uid,
        gid: meta.ids.gid,
        device: meta.device,
        times: Times {
            modified: meta.stamps.modified,
            accessed: other(meta.stamps.accessed),
            changed: other(meta.stamps.changed),
            created: other(meta.stamps.created),
        },
        size: if meta.kind == NodeKind::File { meta.size } else { 0 },
        xattrs: catalogue.xattrs(node).to_vec(),
        runs: if meta.kind == NodeKind::File { writer::align(&runs, meta.size) } else { Vec::new() },
    }
}

#[test]
fn our_archives_are_the_directory_to_us_and_to_gnu_tar() {
    let test = "our_archives_are_the_directory_to_us_and_to_gnu_tar";
    let scratch = odd_tree("interop-ours", &odd::Options { many: 500, ..odd::Options::default() });
    let directory = read(&scratch.join("tree"));
    pack(&directory, &scratch.join("ours.tar"));
    let ours = read(&scratch.join("ours.tar"));
    assert_same(
        &directory,
        &ours,
        Rules {
            linked: &[
                NodeKind::File,
                NodeKind::Symlink,
                NodeKind::CharDevice,
                NodeKind::BlockDevice,
                NodeKind::Fifo,
            ],
            ..ALL
        },
    );
    // Packing is a function of content: a second round changes no byte.
    pack(&ours, &scratch.join("again.tar"));
    assert!(fs::read(scratch.join("ours.tar")).unwrap() == fs::read(scratch.join("again.tar")).unwrap());
    // Attributes, owners and devices need root when unpacked.
    if !tool::have_tools(test, &["tar"]) || !tool::have_root(test) {
        return;
    }
    fs::create_dir(scratch.join("out")).unwrap();
    let mut command = tool::command("tar");
    command.args(["--numeric-owner", "--same-permissions", "--xattrs", "--xattrs-include=*", "--acls"]);
    tool::run(command.arg("-xf").arg(scratch.join("ours.tar")).arg("-C").arg(scratch.join("out")));
    assert_same(&directory, &read(&scratch.join("out")), Rules { holes: false, ..ALL });
}

#[test]
fn python_reads_our_archives() {
    if !tool::have_tools("python_reads_our_archives", &["python3"]) {
        return;
    }
    let scratch = odd_tree("interop-listed", &odd::Options::modest());
    let directory = read(&scratch.join("tree"));
    pack(&directory, &scratch.join("ours.tar"));
    let script = "import sys, tarfile, os\n\
        for m in tarfile.open(sys.argv[1], errorlevel=2):\n\
        \x20   n = os.fsencode(m.name); sys.stdout.buffer.write(b'%d %d %s\\n' % (m.size, m.mode, n.replace(b'\\n', b'?')))\n";
    let mut command = tool::command("python3");
    let listed = tool::run(command.args(["-c", script]).arg(scratch.join("ours.tar"))).stdout;
    let names = facts(&directory, ALL).len();
    assert_eq!(listed.split(|&b| b == b'\n').filter(|line| !line.is_empty()).count(), names);
}
