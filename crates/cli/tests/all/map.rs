//! `plat map`: the figures of `frag` and `freefrag`, in every form; the page in a browser.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::plat::plat;
use serde_json::Value;
use testkit::browser::Browser;
use testkit::images;
use testkit::images::golden;
use testkit::scratch::Scratch;

const HOSTILE: &str = "<\u{2028}img src=x onerror=alert(1)>&\"'<!--";

fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

fn sum(of: &Value, key: &str) -> u64 {
    of.as_array().unwrap().iter().map(|one| one[key].as_u64().unwrap()).sum()
}

/// An image of a few files, one with a name that wants to be markup, one with a name that is no text.
fn small(scratch: &Scratch) -> PathBuf {
    let (tree, image) = (scratch.join("tree"), scratch.join("disk.img"));
    fs::create_dir_all(tree.join("directory")).unwrap();
    fs::write(tree.join(HOSTILE), vec![1; 300_000]).unwrap();
    fs::write(tree.join("directory").join(OsStr::from_bytes(b"n\xff\x1b[2J")), vec![2; 9_000]).unwrap();
    fs::write(tree.join("plain"), vec![3; 2_000_000]).unwrap();
    plat("build --size 64M", &tree, &[image.as_os_str()]).fine();
    image
}

#[test]
fn figures_are_those_of_frag_and_freefrag_and_cells_add_up() {
    for recipe in images::all().iter().filter(|recipe| recipe.name != "unclean") {
        let Some(image) = golden("plat map", recipe.name) else { continue };
        let map = json(&plat("map --json", &image, &[]).out);
        let (frag, free) =
            (json(&plat("frag --json", &image, &[]).out), json(&plat("freefrag --json", &image, &[]).out));
        for key in ["files", "extents", "fragmented_files"] {
            assert_eq!(map[key], frag[key], "{}: {key}", recipe.name);
        }
        for key in ["free_blocks", "free_extents", "histogram", "blocks"] {
            assert_eq!(map[key], free[key], "{}: {key}", recipe.name);
        }
        let by_extents: u64 =
            map["files_by_extents"].as_array().unwrap().iter().filter_map(Value::as_u64).sum();
        assert_eq!(frag["files_with_blocks"], by_extents, "{}", recipe.name);
        let cells = &map["cells"];
        let (clusters, used) = (sum(cells, "clusters"), sum(cells, "used"));
        let info = json(&plat("info --json", &image, &[]).out);
        let per_cluster = info["superblock"]["cluster_size"]
            .as_u64()
            .map_or(1, |size| size / map["block_size"].as_u64().unwrap());
        assert_eq!(map["free_blocks"], (clusters - used) * per_cluster, "{}", recipe.name);
        let inodes = sum(cells, "used_inodes") / map["cells_per_group"].as_u64().unwrap();
        assert_eq!(info["inodes_used"], inodes, "{}", recipe.name);
    }
}

#[test]
fn text_is_as_wide_as_asked_for_and_coloured_on_request() {
    let scratch = Scratch::new("map-text");
    let image = small(&scratch);
    for width in [40, 100, 333] {
        let text = String::from_utf8(plat(&format!("map --color never --width {width}"), &image, &[]).fine())
            .unwrap();
        // The head names the image, which may have any length.
        let cells: Vec<&str> = text.lines().skip(5).take_while(|line| !line.starts_with("each")).collect();
        let named =
            |group| cells.iter().filter(|line| line.trim().starts_with(&format!("group {group} "))).count();
        assert!((0..8).all(|group| named(group) == 1), "{text}");
        assert!(
            (1..=32).contains(&cells.len()) && cells.iter().all(|line| line.chars().count() <= width),
            "{text}"
        );
        assert!(!text.contains('\x1b'), "no colours, and no escapes from names");
        assert!(text.contains("3 files, 1.000 extents per file"), "{text}");
    }
    let colored = String::from_utf8(plat("map --color always --width 80", &image, &[]).fine()).unwrap();
    assert!(colored.contains("\x1b[38;5;") && colored.contains("\x1b[0m"));
}

/// A large volume has tables everywhere: what holds files stands out, on one screen.
#[test]
fn files_of_a_large_volume_stand_out_on_a_screen() {
    let scratch = Scratch::new("map-large");
    let (tree, image) = (scratch.join("tree"), scratch.join("disk.img"));
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), vec![1; 3_000_000]).unwrap();
    plat("build --size 2T -O ^has_journal", &tree, &[image.as_os_str()]).fine();
    let text = String::from_utf8(plat("map --color never --width 80", &image, &[]).fine()).unwrap();
    let end = text.lines().position(|line| line.starts_with("each character")).unwrap();
    assert!(end < 24 && text.lines().skip(1).all(|line| line.chars().count() <= 80), "{text}");
    let cells: String =
        text.lines().skip(5).take(end - 5).map(|line| line.chars().skip(15).collect::<String>()).collect();
    let own = cells.chars().filter(|cell| *cell == '-').count();
    let shaded = cells.chars().filter(|cell| !"-\u{b7}".contains(*cell)).count();
    assert!(own > 500 && (1..4).contains(&shaded), "{own} and {shaded}: {text}");
    assert_eq!(
        text.split("files by extents").nth(1).unwrap().lines().nth(1).unwrap().trim().split("  ").next(),
        Some("1")
    );
}

#[test]
fn a_file_appears_whole_and_replaces_nothing_unasked() {
    let scratch = Scratch::new("map-files");
    let image = small(&scratch);
    for (name, start) in [("map.html", "<!doctype html>"), ("map.svg", "<svg "), ("map.txt", "")] {
        let file = scratch.join(name);
        let out = ["-o".as_ref(), file.as_os_str()];
        plat("map", &image, &out).fine();
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.starts_with(start) && text.len() > 500, "{name}");
        assert!(!text.contains("<img") && !text.contains('\x1b'), "{name}");
        fs::write(&file, "old").unwrap();
        assert!(plat("map", &image, &out).failed().contains("exists"));
        assert_eq!(fs::read(&file).unwrap(), b"old");
        plat("map --force", &image, &out).fine();
        assert_eq!(fs::read_to_string(&file).unwrap(), text, "the same image is the same map");
    }
    let other = scratch.join("map.png");
    let ran = plat("map", &image, &["-o".as_ref(), other.as_os_str()]);
    assert_eq!(ran.code, ExitCode::from(2), "{}", ran.err);
    let before = names(scratch.path());
    fs::write(&image, vec![0; 70_000]).unwrap();
    let absent = scratch.join("absent.html");
    plat("map", &image, &["-o".as_ref(), absent.as_os_str()]).failed();
    assert_eq!(names(scratch.path()), before, "a failure leaves nothing");
}

fn names(directory: &Path) -> Vec<std::ffi::OsString> {
    let mut names: Vec<_> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names
}

#[test]
fn a_large_volume_has_no_more_cells_than_a_small_one() {
    let scratch = Scratch::new("map-large");
    let (image, file) = (scratch.join("disk.img"), scratch.join("map.html"));
    plat("mkfs -O ^has_journal", &image, &["1T".as_ref()]).fine();
    let map = plat("map --json", &image, &[]).fine();
    let cells = json(&map)["cells"].as_array().unwrap().len();
    assert!((2_048..=8_192).contains(&cells) && map.len() < 3 << 20, "{cells} cells, {} bytes", map.len());
    plat("map", &image, &["-o".as_ref(), file.as_os_str()]).fine();
    assert!(fs::metadata(&file).unwrap().len() < 1 << 20);
    let lines = plat("map --width 120", &image, &[]).fine();
    assert!(lines.iter().filter(|byte| **byte == b'\n').count() < 80);
    // What a cell stands for is said in bytes, too: groups differ from volume to volume.
    let text = String::from_utf8(lines).unwrap();
    assert!(text.contains("2 groups (256 MiB)"), "{text}");
    let drawing = scratch.join("disk.svg");
    plat("map", &image, &["-o".as_ref(), drawing.as_os_str()]).fine();
    assert!(fs::read_to_string(&drawing).unwrap().contains("A cell is 2 groups (256 MiB)."));
}

#[test]
fn the_page_shows_layers_files_and_names() {
    let scratch = Scratch::new("map-page");
    let (image, page) = (small(&scratch), scratch.join("map.html"));
    plat("map", &image, &["-o".as_ref(), page.as_os_str()]).fine();
    let Some(browser) = Browser::start("plat map in a browser") else { return };
    browser.open(&page);
    let marks = |id: &str| {
        browser.run(&format!("return +document.querySelector('#{id} .draw').dataset.marks")).as_i64().unwrap()
    };
    assert!(marks("cells") > 500 && marks("free") > 0 && marks("pieces") == 1);
    // Three files and as many directories: the root, lost+found, directory.
    assert_eq!(browser.run("return document.querySelectorAll('#files .track').length"), 6);
    assert_eq!(
        browser.run("return document.querySelectorAll('img, [onerror]').length + document.scripts.length"),
        3
    );
    let text = browser.run("return document.getElementById('files').textContent");
    assert!(text.as_str().unwrap().contains("img src=x onerror=alert(1)>&\"'<!--"), "{text}");

    let picture = "return [...document.querySelectorAll('#cells .draw svg path')].map((p) => p.getAttribute('d')).join()";
    let mut seen = vec![browser.run(picture)];
    for layer in 1..4 {
        browser.click(&format!("button[data-layer=\"{layer}\"]"));
        let now = browser.run(picture);
        assert!(!seen.contains(&now), "layer {layer}");
        seen.push(now);
    }
    browser.run("document.querySelectorAll('#files svg rect[fill=transparent]')[0].dispatchEvent(new MouseEvent('click'))");
    let chosen = browser.run("return document.getElementById('chosen').textContent");
    assert!(chosen.as_str().unwrap().contains("/plain, 1 extents"), "{chosen}");
    assert!(
        !browser
            .run("return document.querySelector('#cells .pick').getAttribute('d')")
            .as_str()
            .unwrap()
            .is_empty()
    );
    let key = "const keys = ['ArrowDown', 'Enter']; for (const key of keys) document.querySelector('#files svg').dispatchEvent(new KeyboardEvent('keydown', { key }))";
    browser.run(key);
    let next = browser.run("return document.getElementById('chosen').textContent");
    assert!(
        next != chosen && next.as_str().unwrap().starts_with("Marked: /"),
        "the keyboard chooses the next: {next}"
    );
    browser.run("const find = document.getElementById('find'); find.value = 'PLAIN'; find.dispatchEvent(new Event('input'))");
    assert_eq!(browser.run("return document.querySelectorAll('#files .track').length"), 1);
    let box_of = "const box = document.querySelector('#cells .draw svg').getBoundingClientRect();";
    browser.run(&format!("{box_of} document.querySelector('#cells .draw svg').dispatchEvent(new PointerEvent('pointermove', {{ clientX: box.left + 3, clientY: box.top + 3 }}))"));
    let tip = browser.run("return document.getElementById('tip').innerText");
    let tip = tip.as_str().unwrap();
    assert!(tip.starts_with("group 0") && tip.ends_with("the volume's own, no file's"), "{tip}");
    units_and_scales(&browser);
    stretched(&browser, &scratch);
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

/// Axes and legends say what they show, and sizes are those of the commands.
fn units_and_scales(browser: &Browser) {
    let text = |id: &str| {
        let text = browser.run(&format!("return document.getElementById('{id}').textContent"));
        text.as_str().unwrap().to_owned()
    };
    browser.click("button[data-layer=\"0\"]");
    assert_eq!(text("legend"), "in use: noneall");
    browser.click("button[data-layer=\"3\"]");
    assert!(text("legend").starts_with("pieces of files: none") && text("legend").ends_with(" in a cell"));
    assert!(text("free").contains("free, MiB"), "{}", text("free"));
    assert!(text("files").contains("0 B") && text("files").contains("48 MiB"), "{}", text("files"));
    for bytes in [0, 1, 1023, 1024, 10_170_000, 10_400_001, 10_485_759, 1 << 40, (1 << 40) + 1] {
        let drawn = browser.run(&format!("return draw.bytes({bytes})"));
        assert_eq!(drawn, platfs_forensics::words::human(bytes), "{bytes}");
    }
    let covered = "const host = document.createElement('div'); document.body.append(host);
        const points = [[1, 2], [3, 4]], one = (name) => ({ name, color: 0, points });
        draw.lines(host, { label: 'l', x: 'x', y: 'y', series: [one('a'), one('b')] });
        return [...host.querySelectorAll('polyline')].map((line) => line.getAttribute('stroke-dashoffset')).join()";
    assert_eq!(browser.run(covered), "0,-7");
}

/// Cells of a large volume that is nearly empty differ.
fn stretched(browser: &Browser, scratch: &Scratch) {
    let (image, page) = (scratch.join("large.img"), scratch.join("large.html"));
    plat("mkfs -O ^has_journal", &image, &["2T".as_ref()]).fine();
    plat("map", &image, &["-o".as_ref(), page.as_os_str()]).fine();
    browser.open(&page);
    let shades = "return [...document.querySelectorAll('#cells .draw svg path[class^=l]')].filter((path) => path.getAttribute('d')).length";
    assert!(browser.run(shades).as_i64() >= Some(3), "{}", browser.run(shades));
    let legend = browser.run("return document.getElementById('legend').textContent");
    assert!(legend.as_str().unwrap().ends_with("% of a cell"), "{legend}");
}
