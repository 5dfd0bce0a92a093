//! The library behind the page, on the host; and the page in a browser, which `make web-test` runs.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod explorer;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::{Events, Pieces, Session, Source};
use explorer::Explorer;
use platfs::device::{Device, FileDevice, MemoryDevice};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use testkit::images;
use testkit::images::golden;
use testkit::scratch::Scratch;
use testkit::tool;

#[derive(Default)]
struct Heard(Vec<Value>);

impl Events for Heard {
    fn event(&mut self, text: &str) {
        self.0.push(serde_json::from_str(text).unwrap());
    }
}

fn ask(session: &mut Session, question: &Value, heard: &mut Heard) -> Value {
    serde_json::from_str(&session.ask(question.to_string().as_bytes(), heard)).unwrap()
}

fn opened(image: &Path) -> (Session, Value) {
    let device = FileDevice::new(File::open(image).unwrap()).unwrap();
    let mut session = Session::new(Arc::new(device));
    let disk = ask(&mut session, &json!({ "ask": "disk" }), &mut Heard::default());
    assert_eq!(disk["volume"], true, "{disk}");
    let open = json!({ "ask": "open", "start": 0, "size": disk["size"] });
    let answer = ask(&mut session, &open, &mut Heard::default());
    (session, answer)
}

fn sum(list: &Value) -> u64 {
    list.as_array().unwrap().iter().filter_map(Value::as_u64).sum()
}

#[test]
fn every_kind_of_image_is_listed_mapped_and_checked() {
    for recipe in images::all() {
        let Some(image) = golden("web", recipe.name) else { continue };
        let (mut session, answer) = opened(&image);
        let mut asked = |question: Value, heard: &mut Heard| {
            let answer = ask(&mut session, &question, heard);
            assert!(answer["error"].is_null(), "{} {question}: {answer}", recipe.name);
            answer
        };
        let quiet = &mut Heard::default();
        let list = asked(json!({ "ask": "list", "inode": answer["root"], "from": "0" }), quiet);
        let names = list["entries"].as_array().unwrap();
        assert!(names.iter().any(|one| one["name"] == "lost+found" || one["name"] != ""), "{}", recipe.name);
        for name in names {
            asked(json!({ "ask": "facts", "inode": name["inode"] }), quiet);
            asked(json!({ "ask": "extents", "inode": name["inode"] }), quiet);
        }
        let about = asked(json!({ "ask": "superblock" }), quiet);
        assert!(sum(&json!([about["groups"]])) > 0);
        asked(json!({ "ask": "groups", "from": 0, "count": u64::MAX }), quiet);
        let map = asked(json!({ "ask": "map" }), quiet);
        let mut heard = Heard::default();
        let size = fs::metadata(&image).unwrap().len();
        let check = asked(json!({ "ask": "check", "start": 0, "size": size }), &mut heard);
        let found: u64 =
            check["kinds"].as_array().unwrap().iter().filter_map(|kind| kind["count"].as_u64()).sum();
        let issues = heard.0.iter().filter(|event| event["issue"].is_object()).count() as u64;
        assert_eq!(found, check["issues"].as_u64().unwrap(), "{}", recipe.name);
        assert!(issues == found && (found == 0 || recipe.name == "unclean"), "{}: {check}", recipe.name);
        // Blocks in use are those of the check, and of 1,024 bytes one more, which lies before the first.
        let (used, counted) = (sum(&map["used"]), check["blocks_used"].as_u64().unwrap());
        assert!(
            used == counted || used + 1 == counted || recipe.name == "unclean",
            "{}: {used} {counted}",
            recipe.name
        );
    }
}

#[test]
fn questions_without_sense_have_answers_in_words() {
    let mut session = Session::new(Arc::new(MemoryDevice::new(1 << 20)));
    let quiet = &mut Heard::default();
    for question in
        ["", "{", "7", "{}", r#"{"ask":"list"}"#, r#"{"ask":"open","start":-1,"size":3}"#, "\u{0}"]
    {
        let answer: Value = serde_json::from_str(&session.ask(question.as_bytes(), quiet)).unwrap();
        assert!(answer["error"].is_string(), "{question}: {answer}");
    }
    let disk = ask(&mut session, &json!({ "ask": "disk" }), quiet);
    assert!(disk["problem"].as_str().unwrap().starts_with("no ext2, ext3 or ext4 volume"), "{disk}");
    for (start, size) in [(0, 1 << 20), (0, 1 << 40), (u64::MAX, u64::MAX), (512, 512)] {
        let open = ask(&mut session, &json!({ "ask": "open", "start": start, "size": size }), quiet);
        assert!(open["error"].is_string(), "{open}");
    }
    let Some(image) = golden("web", images::all()[0].name) else { return };
    let (mut session, _) = opened(&image);
    for (question, more) in
        [("list", json!("x")), ("list", json!("18446744073709551615")), ("facts", json!(0)), ("x", json!(1))]
    {
        for inode in [0_u64, 1, 5, u64::from(u32::MAX), u64::MAX] {
            let question = json!({ "ask": question, "inode": inode, "from": more, "count": 1 });
            assert!(ask(&mut session, &question, quiet).is_object());
        }
    }
    let mut buffer = [0; 8];
    assert!(
        session.read(0, 0, &mut buffer).is_err() && session.read(u32::MAX, 1 << 60, &mut buffer).is_err()
    );
}

#[test]
fn a_search_names_the_directories_on_its_way() {
    let scratch = Scratch::new("web-search");
    let Some(image) = populated(&scratch, "64M", (1 << 20, 0)) else { return };
    let (mut session, answer) = opened(&image);
    let mut heard = Heard::default();
    let question = json!({ "ask": "search", "inode": answer["root"], "text": "FILE-07" });
    let done = ask(&mut session, &question, &mut heard);
    let matches: Vec<&Value> = heard.0.iter().filter_map(|event| event.get("match")).collect();
    assert_eq!((done["found"].as_u64(), matches.len()), (Some(20), 20), "{done}");
    for one in &matches {
        let path = one["path"].as_str().unwrap();
        let way = one["way"].as_array().unwrap();
        assert_eq!(path.split('/').count() + 1, way.len(), "{one}");
        let places = ask(&mut session, &json!({ "ask": "places", "path": path }), &mut Heard::default());
        let last = places["way"].as_array().unwrap().last().unwrap()["inode"].clone();
        assert_eq!(Some(&last), way.last(), "{one}");
    }
    let broken = json!({ "ask": "places", "path": "docs/none" });
    assert!(ask(&mut session, &broken, &mut heard)["error"].as_str().unwrap().contains("/docs/none"));
}

#[test]
fn others_do_not_keep_a_search_from_the_name_itself() {
    let scratch = Scratch::new("web-exact");
    let Some(image) = populated(&scratch, "64M", (1 << 20, 2_500)) else { return };
    let (mut session, answer) = opened(&image);
    // Names that hold it are without number, and stand before it.
    for (text, exact) in [("name-7", 1), ("NAME-", 0), ("lost+found", 1)] {
        let mut heard = Heard::default();
        let question = json!({ "ask": "search", "inode": answer["root"], "text": text });
        let done = ask(&mut session, &question, &mut heard);
        let matches: Vec<&Value> = heard.0.iter().filter_map(|event| event.get("match")).collect();
        let found = matches.iter().filter(|one| one["exact"] == true).count();
        assert_eq!((done["found"].as_u64(), found), (Some(matches.len() as u64), exact), "{text}: {done}");
        assert_eq!(done["more"], text == "NAME-", "{text}: {done}");
    }
    // More than are given hold an `e`; of those that are it, none is left out.
    let one = File::create(scratch.join("e")).unwrap();
    drop(one);
    tool::run(
        tool::command("debugfs")
            .args(["-w", "-R", &format!("write {} many/e", scratch.join("e").display())])
            .arg(&image),
    );
    let (mut session, answer) = opened(&image);
    let mut heard = Heard::default();
    let question = json!({ "ask": "search", "inode": answer["root"], "text": "e" });
    let done = ask(&mut session, &question, &mut heard);
    assert_eq!(done["more"], true);
    assert!(heard.0.iter().any(|event| event["match"]["exact"] == true), "{done}");
}

#[test]
fn findings_are_explained_and_have_paths() {
    let scratch = Scratch::new("web-findings");
    let Some(image) = populated(&scratch, "64M", (1 << 20, 0)) else { return };
    if !tool::have_tools("web", &["debugfs"]) {
        return;
    }
    let request = "sif /docs/readme.txt links_count 5";
    tool::run(tool::command("debugfs").args(["-w", "-R", request]).arg(&image));
    let (mut session, _) = opened(&image);
    let mut heard = Heard::default();
    let check = json!({ "ask": "check", "start": 0, "size": 64 << 20 });
    let check = ask(&mut session, &check, &mut heard);
    assert_eq!(
        (check["issues"].as_u64(), check["kinds"][0]["kind"].as_str()),
        (Some(1), Some("inode-links")),
        "{check}"
    );
    assert!(!check["kinds"][0]["means"].as_str().unwrap().is_empty());
    let issue = heard.0.iter().find_map(|event| event.get("issue")).unwrap();
    assert_eq!(check["paths"][issue["inode"].to_string()], "/docs/readme.txt");
    assert!(heard.0.iter().any(|event| event["pass"].is_string()), "progress is reported");
}

/// A disk that counts how often it is read.
struct Counted(FileDevice, Arc<AtomicU64>);

impl Source for Counted {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.read_at(offset, buffer)
    }
}

#[test]
fn a_large_directory_in_the_order_of_hashes_reads_inodes_in_their_own_order() {
    const NAMES: usize = 10_000;
    const INODE: u64 = 4_096;
    let scratch = Scratch::new("web-hashed");
    if !tool::have_tools("web", &["mke2fs", "e2fsck"]) {
        return;
    }
    let (tree, image) = (scratch.join("tree"), scratch.join("disk.img"));
    fs::create_dir(&tree).unwrap();
    (0..NAMES).for_each(|name| drop(File::create(tree.join(format!("name-{name}"))).unwrap()));
    tool::run(
        tool::command("mke2fs")
            .args([
                "-q",
                "-t",
                "ext4",
                "-O",
                "^has_journal",
                "-b",
                "4096",
                "-I",
                &INODE.to_string(),
                "-N",
                "12000",
                "-d",
            ])
            .args([&tree, &image])
            .arg("128M"),
    );
    // The names of a directory that is indexed stand in the order of their hashes. The exit code says that it was changed.
    tool::command("e2fsck").arg("-fyD").arg(&image).output().unwrap();
    let reads = Arc::new(AtomicU64::new(0));
    let source = Counted(FileDevice::new(File::open(&image).unwrap()).unwrap(), Arc::clone(&reads));
    let size = source.size();
    let mut session = Session::new(Arc::new(Pieces::new(source)));
    let quiet = &mut Heard::default();
    let root = ask(&mut session, &json!({ "ask": "open", "start": 0, "size": size }), quiet)["root"].clone();
    let (mut names, mut answers, mut from) = (BTreeSet::new(), 0, Value::from("0"));
    while from.is_string() {
        let list = ask(&mut session, &json!({ "ask": "list", "inode": root, "from": from }), quiet);
        assert!(list["problem"].is_null(), "{list}");
        names.extend(list["entries"].as_array().unwrap().iter().map(|one| one["name"].to_string()));
        (answers, from) = (answers + 1, list["next"].clone());
    }
    assert_eq!(names.len(), NAMES + 1, "with lost+found");
    // Each answer reads each piece of the tables once, whatever is kept in memory.
    let pieces = NAMES as u64 * INODE / (64 << 10);
    let reads = reads.load(Ordering::Relaxed);
    assert!(answers < 4 && reads < answers * pieces + 100, "{reads} reads in {answers} answers");
}

#[test]
fn damaged_volumes_are_shown_as_far_as_they_can_be_and_as_a_repair_leaves_them() {
    let scratch = Scratch::new("web-damaged");
    let Some(image) = populated(&scratch, "64M", (1 << 20, 0)) else { return };
    let whole = fs::read(&image).unwrap();
    let root = |session: &mut Session, answer: &Value| {
        let list = json!({ "ask": "list", "inode": answer["root"], "from": "0" });
        let list = ask(session, &list, &mut Heard::default());
        list["entries"].as_array().map_or(0, Vec::len)
    };
    // Blocks of 1,024 bytes: descriptors begin at the third.
    let damages: [(&str, std::ops::Range<usize>, bool); 3] = [
        // The checksum of the second group's descriptor: all is there.
        ("checksum", 2048 + 64 + 0x1E..2048 + 64 + 0x20, true),
        // Where the first group's tables lie.
        ("descriptor", 2048..2048 + 64, false),
        ("superblock", 1024..2048, false),
    ];
    for (what, range, is_readable) in damages {
        let mut bytes = whole.clone();
        bytes[range.clone()].copy_from_slice(&noise(range.len() + 1)[1..]);
        fs::write(&image, bytes).unwrap();
        // The disk is offered as one that may hold a volume.
        let (mut session, answer) = opened(&image);
        if is_readable {
            let warning = answer["warning"].as_str().unwrap();
            assert!(warning.ends_with("; what follows is what is there of it"), "{what}: {warning}");
            assert_eq!(root(&mut session, &answer), 5, "{what}");
        } else {
            assert!(answer["error"].is_string() || answer["warning"].is_string(), "{what}: {answer}");
        }
        let repaired = json!({ "ask": "open", "start": 0, "size": whole.len(), "repaired": true });
        let answer = ask(&mut session, &repaired, &mut Heard::default());
        assert_eq!(
            (&answer["repaired"], &answer["warning"]),
            (&true.into(), &Value::Null),
            "{what}: {answer}"
        );
        assert_eq!(root(&mut session, &answer), 5, "{what}: {answer}");
    }
}

const PNG: &[u8] = &[
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0, 0, 0, 0x0d, 0x49, 0x48, 0x44, 0x52, 0, 0, 0, 1, 0, 0,
    0, 1, 8, 6, 0, 0, 0, 0x1f, 0x15, 0xc4, 0x89, 0, 0, 0, 0x0d, 0x49, 0x44, 0x41, 0x54, 0x78, 0x9c, 0x63,
    0x60, 0x60, 0x60, 0xf8, 0x0f, 0, 1, 4, 1, 0, 0x5f, 0xe5, 0xc3, 0x4b, 0, 0, 0, 0, 0x49, 0x45, 0x4e, 0x44,
    0xae, 0x42, 0x60, 0x82,
];

/// Bytes that look like none of a kind, the same in every run.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.take(len.div_ceil(8)).flatten().take(len).collect()
}

/// An image of a tree with 2,000 files in directories, a large one, a picture, links and an odd name, and many empty ones
/// in a directory of their own.
fn populated(scratch: &Scratch, size: &str, (large, many): (usize, usize)) -> Option<PathBuf> {
    if !tool::have_tools("web", &["mke2fs"]) {
        return None;
    }
    let (tree, image) = (scratch.join("tree"), scratch.join("disk.img"));
    for directory in 0..20 {
        let inside = tree.join(format!("data/set-{directory:02}"));
        fs::create_dir_all(&inside).unwrap();
        for file in 0..100 {
            let text = format!("file {file} of set {directory}\n").repeat(1 + file * 3);
            fs::write(inside.join(format!("file-{file:02}.txt")), text).unwrap();
        }
    }
    fs::create_dir_all(tree.join("docs/deep/deeper/deepest")).unwrap();
    for number in 0..many {
        fs::create_dir_all(tree.join("many")).unwrap();
        File::create(tree.join(format!("many/name-{number}"))).unwrap();
    }
    fs::write(tree.join("docs/readme.txt"), "Read me.\nA second line, with \u{fc}ml\u{e4}uts.\n".repeat(40))
        .unwrap();
    fs::write(tree.join("docs/set"), "").unwrap();
    fs::write(tree.join("docs/dot.png"), PNG).unwrap();
    fs::write(tree.join("docs/<img src=x onerror=alert(1)>\u{202e}gpj.exe"), "markup").unwrap();
    fs::write(tree.join("large.bin"), noise(large)).unwrap();
    symlink("../docs/readme.txt", tree.join("data/link")).unwrap();
    symlink("docs/deep", tree.join("way")).unwrap();
    tool::run(
        tool::command("mke2fs")
            .args(["-q", "-t", "ext4", "-L", "explored", "-d"])
            .arg(&tree)
            .arg(&image)
            .arg(size),
    );
    Some(image)
}

fn digest(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    File::open(path).unwrap().read_to_end(&mut bytes).unwrap();
    Sha256::digest(&bytes).to_vec()
}

/// The page, where it was made; `make web` makes it.
fn page(test: &str) -> Option<PathBuf> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/web/platfs.html");
    if !page.is_file() {
        tool::skip(test, "target/web/platfs.html is missing; `make web` makes it");
        return None;
    }
    Some(page.canonicalize().unwrap())
}

#[test]
#[ignore = "needs the page and a browser: make web-test"]
fn a_large_image_is_explored() {
    let Some(page) = page("web page") else { return };
    let scratch = Scratch::new("web-page");
    let Some(image) = populated(&scratch, "2G", (96 << 20, 6_000)) else { return };
    let Some(explorer) = Explorer::start("web page", &page, &scratch) else { return };
    let first = explorer.open(&image);
    explorer.click("#another");
    let again = explorer.open(&image);
    println!("first listing after {first} ms, {again} ms the second time");
    // Other tests of the machine may take the processor away once.
    assert!(first.min(again) < 1000, "{first} and {again} ms");
    assert_eq!(explorer.names(), ["data", "docs", "lost+found", "many", "large.bin", "way"]);

    let began = Instant::now();
    explorer.choose("many");
    explorer.wait("document.querySelector('#count').textContent === '0 directories, 6,000 other names'");
    explorer.press("#grid", explorer::END);
    explorer.wait("document.querySelector('#rows [aria-selected=true]').textContent.includes('name-5999')");
    println!("6,000 names after {:?}", began.elapsed());
    explorer.press("#grid", explorer::BACKSPACE);
    explorer.wait("document.querySelectorAll('#rows .row').length === 6");
    explorer.press("#grid", explorer::HOME);

    keyboard(&explorer);
    contents(&explorer);
    let took = explorer.download("large.bin", &scratch.join("tree/large.bin").metadata().unwrap().len());
    println!("96 MiB downloaded in {took:?}");
    assert_eq!(digest(&explorer.downloads().join("large.bin")), digest(&scratch.join("tree/large.bin")));

    explorer.press("#grid", explorer::ESCAPE);
    explorer.click("#tab-map");
    explorer.wait("document.querySelector('#map-note').textContent.startsWith('A cell is')");
    explorer.click("#tab-volume");
    explorer.wait("document.querySelectorAll('#volume table tbody tr').length === 16");
    assert!(explorer.text("#volume").contains("explored"));
    explorer.click("#tab-check");
    explorer.click("#check-go");
    explorer.wait("document.querySelector('#verdict') !== null");
    println!("check: {}", explorer.text("#check-result"));
    assert!(explorer.text("#verdict").contains("Nothing is wrong"));

    let (own, most, library) = explorer.memory();
    let [own, most, library] = [own, most, library].map(|bytes| bytes >> 20);
    println!(
        "{own} MiB of the page's process are its own, {library} MiB of them the library's; {most} MiB at most with shared ones"
    );
    assert!(own < 200, "{own} MiB");
    assert_eq!(explorer.complaints(), Vec::<String>::new());
}

/// Everything with keys: down into directories, back, a search, a preview, sorting.
fn keyboard(explorer: &Explorer) {
    explorer.press("#grid", explorer::ENTER);
    explorer.wait("document.querySelectorAll('#rows .row').length >= 20");
    explorer.press("#grid", explorer::DOWN);
    explorer.press("#grid", explorer::ENTER);
    explorer.wait("document.querySelector('#crumbs').textContent.includes('set-01')");
    explorer.wait("document.querySelector('#count').textContent.includes('100 other')");
    explorer.press("#grid", explorer::BACKSPACE);
    explorer.wait("document.querySelector('#rows [aria-selected=true]').textContent.includes('set-01')");
    explorer.press("#grid", explorer::BACKSPACE);
    explorer.wait("document.querySelector('#rows [aria-selected=true]').textContent.includes('data')");
    explorer.press("#grid", '/');
    explorer.wait("document.activeElement.id === 'wanted'");
    explorer.type_into("#wanted", "readme");
    explorer.press("#wanted", explorer::ENTER);
    explorer.wait("document.querySelector('#count').textContent.startsWith('1 name')");
    explorer.press("#grid", explorer::ENTER);
    explorer.wait("document.querySelector('pre.text')?.textContent.startsWith('Read me.')");
    explorer.press("#download", explorer::ESCAPE);
    explorer.wait("document.querySelector('#detail').hidden");
    explorer.press("#grid", explorer::ESCAPE);
    explorer.wait("document.querySelectorAll('#rows .row').length === 6");
    // The name itself goes before directories whose names only hold it.
    explorer.press("#grid", '/');
    explorer.type_into("#wanted", "set");
    explorer.press("#wanted", explorer::ENTER);
    explorer.wait("document.querySelector('#count').textContent.startsWith('21 names')");
    explorer.wait("document.querySelector('#rows .row .c-name')?.title === 'set'");
    explorer.press("#grid", explorer::ESCAPE);
    explorer.wait("document.querySelectorAll('#rows .row').length === 6");
}

/// Pictures, names that want to be markup, links.
fn contents(explorer: &Explorer) {
    explorer.choose("docs");
    explorer.wait("document.querySelector('#crumbs').textContent.includes('docs')");
    explorer
        .wait("document.querySelector('#rows').textContent.includes('onerror=alert(1)>\\\\u{202e}gpj.exe')");
    explorer.choose("dot.png");
    explorer.wait("document.querySelector('#contents img')?.naturalWidth === 1");
    explorer.choose("gpj.exe");
    explorer.wait("document.querySelector('pre.text')?.textContent === 'markup'");
    explorer.press("#grid", explorer::BACKSPACE);
    explorer.wait("document.querySelectorAll('#rows .row').length === 6");
    explorer.choose("way");
    explorer.wait("document.querySelector('#detail .actions button')?.textContent === 'Go to its target'");
    explorer.click("#detail .actions button");
    explorer.wait("document.querySelector('#crumbs').textContent.includes('deep')");
    explorer.click("#crumbs button");
    explorer.wait("document.querySelectorAll('#rows .row').length === 6");
}

#[test]
#[ignore = "needs the page and a browser: make web-test"]
fn disks_with_partitions_and_what_is_no_volume() {
    let Some(page) = page("web parts") else { return };
    let scratch = Scratch::new("web-parts");
    let Some(image) = populated(&scratch, "64M", (1 << 20, 0)) else { return };
    let Some(explorer) = Explorer::start("web parts", &page, &scratch) else { return };
    let (disk, start) = (scratch.join("disk-with-parts.img"), 1_u64 << 20);
    let mut record = vec![0; usize::try_from(start).unwrap()];
    record[446 + 4] = 0x83;
    record[446 + 8..446 + 16].copy_from_slice(&[0, 8, 0, 0, 0, 0, 2, 0]);
    record[462 + 4] = 0x82;
    record[462 + 8..462 + 16].copy_from_slice(&[1, 0, 0, 0, 9, 0, 0, 0]);
    record[510..512].copy_from_slice(&[0x55, 0xAA]);
    let mut file = File::create(&disk).unwrap();
    file.write_all(&record).unwrap();
    file.write_all(&fs::read(&image).unwrap()).unwrap();
    explorer.pick(&disk);
    explorer.wait("document.querySelectorAll('#parts-list button').length === 2");
    assert_eq!(explorer.run("return document.querySelectorAll('#parts-list button:enabled').length"), 1);
    explorer.click("#parts-list button:enabled");
    explorer.wait("document.querySelectorAll('#rows .row').length === 5");
    fs::write(scratch.join("other"), noise(100_000)).unwrap();
    // What is no volume leaves open what is open.
    explorer.pick(&scratch.join("other"));
    explorer.wait("document.querySelector('#alert').textContent.includes('no ext2, ext3 or ext4 volume')");
    assert_eq!(explorer.names().len(), 5);
    explorer.choose("docs");
    explorer.wait("document.querySelector('#rows').textContent.includes('readme.txt')");
    several_files_are_dropped(&explorer, &image);
    assert_eq!(explorer.complaints(), Vec::<String>::new());
}

/// The first is shown, and what was not looked at is named.
fn several_files_are_dropped(explorer: &Explorer, image: &Path) {
    let input = "const input = document.createElement('input'); input.type = 'file'; input.multiple = true; input.id = 'several'; document.body.append(input);";
    explorer.run(input);
    let other = image.with_file_name("other");
    explorer.pick_as("#several", &[image, &other]);
    explorer.run("const held = new DataTransfer(); for (const file of document.querySelector('#several').files) held.items.add(file); dispatchEvent(new DragEvent('drop', { dataTransfer: held, cancelable: true }))");
    explorer.wait("document.querySelector('#alert').textContent.includes('Not looked at: other.')");
    explorer.wait("document.querySelector('#about').textContent.startsWith('disk.img')");
    assert_eq!(explorer.names().len(), 5);
}

#[test]
#[ignore = "needs the page and a browser: make web-test"]
fn back_and_forward_go_through_directories_and_views() {
    let Some(page) = page("web back") else { return };
    let scratch = Scratch::new("web-back");
    let Some(image) = populated(&scratch, "64M", (1 << 20, 0)) else { return };
    let Some(explorer) = Explorer::start("web back", &page, &scratch) else { return };
    let crumbs =
        |text: &str| explorer.wait(&format!("document.querySelector('#crumbs').textContent === {text:?}"));
    explorer.open(&image);
    explorer.choose("data");
    crumbs("/data");
    explorer.choose("set-03");
    crumbs("/data/set-03");
    explorer.click("#tab-volume");
    let files_are =
        |shown: bool| explorer.wait(&format!("document.querySelector('#files').hidden !== {shown}"));
    files_are(false);
    let entries = explorer.run("return history.length");
    let go = |by: i32| explorer.run(&format!("history.go({by})"));
    go(-1);
    files_are(true);
    crumbs("/data/set-03");
    go(-1);
    crumbs("/data");
    go(-1);
    crumbs("/");
    // Before the image; and back to where it was open.
    go(-1);
    explorer.wait("!document.querySelector('#start').hidden && document.querySelector('#tabs').hidden");
    go(2);
    crumbs("/data");
    explorer.wait("document.querySelectorAll('#rows .row').length >= 20");
    assert_eq!(explorer.run("return history.length"), entries, "coming back leaves no entries");
    // On a narrow page a file covers the list.
    explorer.look("light", 400, 800);
    explorer.choose("link");
    explorer.wait("!document.querySelector('#detail').hidden");
    go(-1);
    explorer.wait("document.querySelector('#detail').hidden");
    crumbs("/data");
    assert_eq!(explorer.complaints(), Vec::<String>::new());
}

#[test]
#[ignore = "needs the page and a browser: make web-test"]
fn a_damaged_volume_has_a_way_on_and_assistive_tools_find_their_way() {
    let Some(page) = page("web damaged") else { return };
    let scratch = Scratch::new("web-way-on");
    let Some(image) = populated(&scratch, "64M", (1 << 20, 0)) else { return };
    let Some(explorer) = Explorer::start("web damaged", &page, &scratch) else { return };
    let mut bytes = fs::read(&image).unwrap();
    bytes[1024..2048].copy_from_slice(&noise(1024));
    bytes[2048..2112].copy_from_slice(&noise(64));
    fs::write(&image, bytes).unwrap();
    explorer.pick(&image);
    explorer
        .wait("document.querySelector('#alert').textContent.includes('shown as a repair would leave it')");
    explorer.click("#as-repaired");
    explorer.wait("document.querySelectorAll('#rows .row').length === 5");
    assert!(explorer.text("#about").contains("as a repair would leave it"), "{}", explorer.text("#about"));
    explorer.choose("docs");
    explorer.choose("readme.txt");
    explorer.wait("document.querySelector('pre.text')?.textContent.startsWith('Read me.')");

    // Rows belong to a grid, heads say how it is sorted, what is chosen is there, and pictures have names.
    for wrong in [
        "[...document.querySelectorAll('[role=row]')].filter(row => !row.closest('[role=grid]') && !document.querySelector(`[role=grid][aria-owns~=${row.id || 'none'}]`))",
        "[...document.querySelectorAll('[role=grid] > *')].filter(one => !['row', 'rowgroup'].includes(one.role))",
        "[...document.querySelectorAll('[aria-sort]')].filter(one => one.role !== 'columnheader')",
        "[...document.querySelectorAll('[role=img], [role=grid], [role=progressbar]')].filter(one => !one.ariaLabel)",
        "[...document.querySelectorAll('[aria-activedescendant]')].filter(one => !document.getElementById(one.getAttribute('aria-activedescendant')))",
    ] {
        assert_eq!(explorer.run(&format!("return {wrong}.length")), 0, "{wrong}");
    }
    assert_eq!(explorer.run("return document.querySelectorAll('[role=columnheader][aria-sort]').length"), 5);
    explorer.click("#heads [data-key=size] button");
    explorer.wait("document.querySelector('[data-key=size]').ariaSort === 'descending'");
    assert_eq!(explorer.complaints(), Vec::<String>::new());
}

/// Files that only the library can put together are read by it, part by part: here one of a volume whose journal waits.
#[test]
#[ignore = "needs the page and a browser: make web-test"]
fn files_of_a_volume_that_needs_replay_are_downloaded() {
    let Some(page) = page("web replay") else { return };
    let scratch = Scratch::new("web-replay");
    let Some(image) = golden("web replay", "unclean") else { return };
    let Some(explorer) = Explorer::start("web replay", &page, &scratch) else { return };
    explorer.open(&image);
    assert!(
        explorer.text("#status").contains("journal was replayed in memory"),
        "{}",
        explorer.text("#status")
    );
    let (mut session, answer) = opened(&image);
    let mut heard = Heard::default();
    ask(&mut session, &json!({ "ask": "search", "inode": answer["root"], "text": "" }), &mut heard);
    let entries = heard.0.iter().map(|event| &event["match"]["entry"]);
    let file = entries.filter(|one| one["type"] == "file").max_by_key(|one| one["size"].as_u64()).unwrap();
    let (name, size) = (file["name"].as_str().unwrap(), file["size"].as_u64().unwrap());
    explorer.type_into("#wanted", name);
    explorer.press("#wanted", explorer::ENTER);
    explorer.wait("document.querySelector('#count').textContent.includes(' with ')");
    explorer.download(name, &size);
    let inode = u32::try_from(file["inode"].as_u64().unwrap()).unwrap();
    let mut bytes = vec![0; usize::try_from(size).unwrap()];
    assert_eq!(session.read(inode, 0, &mut bytes), Ok(bytes.len()));
    assert!(size > 0 && fs::read(explorer.downloads().join(name)).unwrap() == bytes);
    assert_eq!(explorer.complaints(), Vec::<String>::new());
}

#[test]
#[ignore = "needs the page and a browser: make web-test"]
fn broken_images_are_explained_and_never_hang_the_page() {
    let Some(page) = page("web broken") else { return };
    let scratch = Scratch::new("web-broken");
    let Some(image) = populated(&scratch, "64M", (1 << 20, 0)) else { return };
    let Some(explorer) = Explorer::start("web broken", &page, &scratch) else { return };
    let whole = fs::read(&image).unwrap();
    for seed in 0..12_usize {
        // Noise over the descriptors, the bitmaps and tables, or somewhere in the first half.
        let mut bytes = whole.clone();
        let at = [4096, 200_000, 400_000, 1_000_000, 3_000_000, 9_000_000][seed % 6] + seed * 64;
        let len = [64, 4096, 200_000][seed / 4];
        bytes[at..at + len].copy_from_slice(&noise(len + seed)[seed..]);
        let broken = scratch.join(format!("broken-{seed}.img"));
        fs::write(&broken, bytes).unwrap();
        explorer.pick(&broken);
        explorer.wait_for("!document.querySelector('#tabs').hidden", Duration::from_secs(20));
        explorer.click("#tab-check");
        explorer.click("#check-go");
        explorer.wait_for(
            "document.querySelector('#check-result').childElementCount > 0 && !document.querySelector('#check-go').hidden",
            Duration::from_secs(30),
        );
        let said = explorer.text("#check-result");
        assert!(!said.contains("library itself"), "{seed}: {said}");
        fs::remove_file(&broken).unwrap();
        explorer.click("#another");
    }
    assert_eq!(explorer.complaints(), Vec::<String>::new());
}

#[test]
#[ignore = "writes pictures to look at, into $PLATFS_SHOTS: make web-test"]
fn pictures_of_the_page() {
    let Some(directory) = std::env::var_os("PLATFS_SHOTS").map(PathBuf::from) else { return };
    let Some(page) = page("web pictures") else { return };
    let scratch = Scratch::new("web-pictures");
    let Some(image) = populated(&scratch, "2G", (96 << 20, 6_000)) else { return };
    let mut bad = fs::read(&image).unwrap();
    bad[4096 + 12..4096 + 14].copy_from_slice(&[1, 0]);
    bad[1024 + 4 * 4..1024 + 4 * 4 + 2].copy_from_slice(&[1, 0]);
    fs::write(scratch.join("bad.img"), bad).unwrap();
    let Some(explorer) = Explorer::start("web pictures", &page, &scratch) else { return };
    fs::create_dir_all(&directory).unwrap();
    for scheme in ["light", "dark"] {
        for (width, height) in [(1400, 900), (400, 800)] {
            explorer.look(scheme, width, height);
            let shot = |what: &str| explorer.shot(&directory.join(format!("{what}-{scheme}-{width}.png")));
            shot("1-start");
            explorer.open(&image);
            shot("2-files");
            explorer.choose("docs");
            explorer.wait("document.querySelector('#crumbs').textContent.includes('docs')");
            explorer.choose("readme.txt");
            explorer.wait("document.querySelector('pre.text') !== null");
            explorer.run("document.querySelector('#layout summary').click()");
            explorer.wait("document.querySelector('#layout table') !== null");
            shot("3-detail");
            explorer.run("document.querySelector('#on-map').click()");
            explorer.wait("document.querySelector('#map-note').textContent.startsWith('A cell is')");
            shot("4-map");
            explorer.click("#tab-volume");
            explorer.wait("document.querySelector('#volume table') !== null");
            shot("5-volume");
            explorer.click("#another");
            explorer.pick(&scratch.join("bad.img"));
            explorer.wait("!document.querySelector('#tabs').hidden");
            explorer.click("#tab-check");
            explorer.click("#check-go");
            explorer.wait("document.querySelector('#verdict') !== null");
            shot("6-check");
            explorer.click("#another");
        }
    }
    assert_eq!(explorer.complaints(), Vec::<String>::new());
}
