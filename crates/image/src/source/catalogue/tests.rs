use super::*;
use crate::archive::{Run, Times, Timestamp};
use crate::source::filter::{Excludes, IdRange};
use crate::source::options::SourceOptions;

fn at(seconds: i64) -> Attributes {
    let times = Times { modified: Timestamp::from_seconds(seconds), ..Times::default() };
    Attributes { mode: 0o600, times, ..Attributes::default() }
}

fn builder() -> CatalogueBuilder {
    CatalogueBuilder::new(SourceOptions::default()).unwrap()
}

fn file(builder: &mut CatalogueBuilder, path: &str) -> NodeId {
    let new = NewNode::File { size: 0, runs: &[], origin: Origin::Section(0) };
    builder.put(path.as_bytes(), at(5), new).unwrap()
}

fn directory(builder: &mut CatalogueBuilder, path: &str) -> NodeId {
    builder.put(path.as_bytes(), at(6), NewNode::Directory).unwrap()
}

fn paths(catalogue: &Catalogue) -> Vec<String> {
    let mut above: Vec<String> = vec![String::new()];
    let mut seen = Vec::new();
    for step in catalogue.walk() {
        above.truncate(step.depth);
        let path = format!("{}{}", above[step.depth - 1], String::from_utf8_lossy(step.name));
        above.push(format!("{path}/"));
        seen.push(path);
    }
    seen
}

#[test]
fn the_walk_is_canonical_whatever_the_order() {
    let names = ["z", "b/x", "a", "b/c/y", "d/e/f", "b/a"];
    let mut first = builder();
    for name in names {
        file(&mut first, name);
    }
    let mut second = builder();
    for name in names.iter().rev() {
        file(&mut second, name);
    }
    let first = first.finish();
    assert_eq!(paths(&first), ["a", "z", "b", "b/a", "b/x", "b/c", "b/c/y", "d", "d/e", "d/e/f"]);
    assert_eq!(paths(&first), paths(&second.finish()));
    assert_eq!(first.summary().names, 10);
    assert_eq!(first.summary().directories, 5);
}

#[test]
fn missing_parents_get_the_newest_time() {
    let mut builder = builder();
    file(&mut builder, "a/b/c");
    directory(&mut builder, "a");
    let catalogue = builder.finish();
    let of = |path: &str| catalogue.metadata(catalogue.find(path.as_bytes()).unwrap());
    assert_eq!((of("a").mode, of("a").stamps.modified.seconds), (0o600, 6));
    assert_eq!((of("a/b").mode, of("a/b").stamps.modified.seconds), (0o755, 6));
    assert_eq!((of("").links, of("a").links, of("a/b").links, of("a/b/c").links), (3, 3, 2, 1));
}

#[test]
fn later_entries_replace() {
    let mut builder = builder();
    file(&mut builder, "d/inside");
    file(&mut builder, "d");
    assert_eq!(
        builder.put(b"d/x", at(1), NewNode::Fifo),
        Err(CatalogueError::NotADirectory(b"d/x".to_vec()))
    );
    directory(&mut builder, "d");
    file(&mut builder, "d/new");
    directory(&mut builder, "d");
    let catalogue = builder.finish();
    assert_eq!(paths(&catalogue), ["d", "d/new"]);
}

#[test]
fn what_was_replaced_is_not_counted() {
    let mut builder = builder();
    file(&mut builder, "a");
    file(&mut builder, "a");
    let catalogue = builder.finish();
    assert_eq!((catalogue.nodes(), catalogue.summary().inodes()), (3, 2));
}

#[test]
fn hard_links_share_a_node() {
    let mut builder = builder();
    let id = file(&mut builder, "d/a");
    assert_eq!(builder.link(b"e/b", b"./d//a"), Ok(id));
    assert_eq!(builder.link(b"d/a", b"d/a"), Ok(id));
    assert!(matches!(builder.link(b"x", b"d/missing"), Err(CatalogueError::NoTarget { .. })));
    assert!(matches!(builder.link(b"x", b"nowhere/a"), Err(CatalogueError::NoTarget { .. })));
    assert!(matches!(builder.link(b"x", b"d"), Err(CatalogueError::LinkToDirectory(_))));
    let catalogue = builder.finish();
    let firsts: Vec<bool> = catalogue.walk().map(|step| step.first).collect();
    assert_eq!(firsts, [true, true, true, false]);
    assert_eq!(catalogue.metadata(id).links, 2);
    assert_eq!(catalogue.summary().files, 1);
}

#[test]
fn a_replaced_name_leaves_the_others() {
    let mut builder = builder();
    let first = file(&mut builder, "a");
    builder.link(b"b", b"a").unwrap();
    let second = file(&mut builder, "a");
    let catalogue = builder.finish();
    assert_eq!((catalogue.find(b"a"), catalogue.find(b"b")), (Some(second), Some(first)));
    assert_eq!(catalogue.metadata(first).links, 1);
}

#[test]
fn links_above_are_followed_inside_the_tree() {
    let mut builder = builder();
    for (path, target) in [("lib", "usr/lib"), ("up", "../../x"), ("abs", "/usr"), ("loop", "loop/a")] {
        builder.put(path.as_bytes(), at(1), NewNode::Symlink(target.as_bytes())).unwrap();
    }
    let names = ["lib/a", "up/b", "abs/c", "usr/lib/../d"];
    for name in &names[..3] {
        file(&mut builder, name);
    }
    assert!(matches!(
        builder.put(names[3].as_bytes(), at(1), NewNode::Fifo),
        Err(CatalogueError::Upwards(_))
    ));
    assert!(matches!(builder.put(b"loop/x", at(1), NewNode::Fifo), Err(CatalogueError::Circle(_))));
    let catalogue = builder.finish();
    assert_eq!(paths(&catalogue)[4..], ["usr", "usr/c", "usr/lib", "usr/lib/a", "x", "x/b"]);
    assert_eq!(catalogue.target(catalogue.find(b"lib").unwrap()), b"usr/lib");
}

#[test]
fn names_are_judged() {
    let mut builder = builder();
    file(&mut builder, "/absolute");
    file(&mut builder, "././/dot/./slash");
    let long = [&b"a/"[..], &[b'n'; 256]].concat();
    assert_eq!(builder.put(&long, at(1), NewNode::Fifo), Err(CatalogueError::LongName(long.clone())));
    assert!(matches!(builder.put(b"../x", at(1), NewNode::Fifo), Err(CatalogueError::Upwards(_))));
    assert!(matches!(builder.put(b"./", at(1), NewNode::Fifo), Err(CatalogueError::Root(_))));
    let root = directory(&mut builder, "./");
    let catalogue = builder.finish();
    assert_eq!(paths(&catalogue), ["absolute", "dot", "dot/slash"]);
    assert_eq!((root, catalogue.metadata(root).mode), (catalogue.root(), 0o600));
}

#[test]
fn removal_and_clearing_detach_whole_trees() {
    let mut builder = builder();
    file(&mut builder, "a/b/c");
    file(&mut builder, "a/d");
    file(&mut builder, "e/f");
    builder.link(b"kept", b"a/b/c").unwrap();
    builder.remove(b"a/b").unwrap();
    builder.remove(b"a/b/c").unwrap();
    builder.remove(b"nothing/here").unwrap();
    builder.clear(b"e").unwrap();
    builder.clear(b"kept").unwrap();
    file(&mut builder, "a/b/new");
    let catalogue = builder.finish();
    assert_eq!(paths(&catalogue), ["kept", "a", "a/d", "a/b", "a/b/new", "e"]);
    builder = self::builder();
    file(&mut builder, "x");
    builder.clear(b"").unwrap();
    assert_eq!(builder.finish().summary().names, 0);
}

#[test]
fn options_shape_the_tree() {
    let options = SourceOptions {
        exclude: Excludes::new(&["*.o", "in/skip"]).unwrap(),
        map_uid: vec!["0:1000:10".parse::<IdRange>().unwrap()],
        prefix: Some("srv/root".into()),
        latest: Some(3),
        ..SourceOptions::default()
    };
    let mut builder = CatalogueBuilder::new(options).unwrap();
    let id = file(&mut builder, "a.o");
    builder.link(b"kept", b"a.o").unwrap();
    file(&mut builder, "in/skip/x");
    file(&mut builder, "in/y");
    let catalogue = builder.finish();
    assert_eq!(paths(&catalogue), ["srv", "srv/root", "srv/root/kept", "srv/root/in", "srv/root/in/y"]);
    let meta = catalogue.metadata(id);
    assert_eq!((meta.ids.uid, meta.links, meta.stamps), (1000, 1, Stamps::all(Timestamp::from_seconds(3))));
    let escaping = SourceOptions { prefix: Some("../x".into()), ..SourceOptions::default() };
    assert!(CatalogueBuilder::new(escaping).is_err());
}

#[test]
fn runs_keep_their_holes() {
    let run = |file_offset, len, archive_offset| Run { file_offset, len, archive_offset };
    let mut builder = builder();
    let origin = Origin::Section(7);
    let mut put = |path: &str, size, runs: &[Run]| {
        builder.put(path.as_bytes(), at(1), NewNode::File { size, runs, origin }).unwrap()
    };
    let whole = put("whole", 5, &[run(0, 5, 100)]);
    let holey = put("holey", 50, &[run(10, 5, 100), run(20, 1, 105)]);
    let hole = put("hole", 50, &[]);
    let catalogue = builder.finish();
    let extents =
        |id| catalogue.extents(id).map(|e| (e.file_offset, e.len, e.origin_offset)).collect::<Vec<_>>();
    assert_eq!(extents(whole), [(0, 5, 100)]);
    assert_eq!(extents(holey), [(10, 5, 100), (20, 1, 105)]);
    assert_eq!(extents(hole), []);
    assert_eq!((catalogue.summary().data_bytes, catalogue.summary().apparent_bytes), (11, 105));
}

#[test]
fn entries_are_compact() {
    assert!(size_of::<Node>() <= 72, "{}", size_of::<Node>());
    assert!(size_of::<builder::Entry>() <= 24);
    assert_eq!(size_of::<Child>(), 12);
}
