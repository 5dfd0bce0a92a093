//! Clean-ups beside those who write: what is in use stays, whatever comes between two requests.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::objects::{Memory, Objects};
use crate::{Error, Push, Store, Stored, Volume, clean, fork, push, verify};
use platfs_device::Device;

use super::hooked::{Fate, Hooked};
use super::{all, image, over, patience};

const SIZE: u64 = 1 << 20;
const DAY: Duration = Duration::from_secs(24 * 3600);

/// A store over objects where `between` is done once, before the first request that `is_it`.
fn interrupted(
    objects: &Arc<Memory>,
    is_it: impl Fn(&str, &str) -> bool + Send + Sync + 'static,
    between: impl FnOnce() + Send + 'static,
) -> Arc<Store> {
    let between = Mutex::new(Some(between));
    let hooked = Hooked::new(objects, move |what, key| {
        if is_it(what, key)
            && let Some(between) = between.lock().unwrap().take()
        {
            between();
        }
        Fate::Done
    });
    Arc::new(Store::new(Arc::new(hooked), patience(), None))
}

/// True if all that volumes refer to is there.
fn is_whole(objects: &Arc<Memory>) -> bool {
    let mut findings = Vec::new();
    verify(&over(objects), &mut |finding| findings.push(finding)).unwrap();
    findings.iter().for_each(|finding| println!("{}: {}", finding.volume, finding.problem));
    findings.is_empty()
}

/// A volume whose map was once what it will be again when its second block is zeros.
fn with_an_old_map(objects: &Arc<Memory>) {
    let store = over(objects);
    push(&store, &image(SIZE, 3), "one", &Push::default()).unwrap();
    for bytes in [[1; 4096], [0; 4096], [2; 4096]] {
        let volume = Volume::open(&store, "one", "test", false).unwrap();
        volume.write_at(4096, &bytes).unwrap();
        volume.close().unwrap();
    }
    objects.pass(DAY);
    clean(&store, DAY, false).unwrap();
    objects.pass(2 * DAY);
}

#[test]
fn a_map_that_is_as_an_old_one_is_not_removed_with_that() {
    let objects = Arc::new(Memory::new());
    with_an_old_map(&objects);
    let writer = Volume::open(&over(&objects), "one", "test", false).unwrap();
    writer.write_zeros(4096, 4096).unwrap();
    let wanted = all(&writer);
    let store = interrupted(
        &objects,
        |what, key| what == "remove" && key.starts_with("map/"),
        move || {
            writer.close().unwrap();
        },
    );
    assert!(clean(&store, DAY, false).unwrap().removed > 0);
    assert!(is_whole(&objects));
    assert!(all(&Stored::open(&over(&objects), "one").unwrap()) == wanted);
}

#[test]
fn a_writer_that_sleeps_for_days_between_its_map_and_its_manifest_loses_nothing() {
    let objects = Arc::new(Memory::new());
    push(&over(&objects), &image(SIZE, 4), "one", &Push::default()).unwrap();
    let asleep = Arc::clone(&objects);
    let is_open = Arc::new(AtomicBool::new(false));
    let is_checkpoint = Arc::clone(&is_open);
    let is_manifest = move |what: &str, key: &str| {
        what == "replace" && key.ends_with("/manifest") && is_checkpoint.load(Ordering::Relaxed)
    };
    let store = interrupted(&objects, is_manifest, move || {
        for _ in 0..3 {
            clean(&over(&asleep), DAY, false).unwrap();
            asleep.pass(2 * DAY);
        }
    });
    let volume = Volume::open(&store, "one", "test", false).unwrap();
    is_open.store(true, Ordering::Relaxed);
    volume.write_at(8192, &[7; 4096]).unwrap();
    let wanted = all(&volume);
    volume.close().unwrap();
    assert!(is_whole(&objects));
    assert!(all(&Stored::open(&over(&objects), "one").unwrap()) == wanted);
}

#[test]
fn what_is_written_beside_a_clean_up_is_not_condemned_by_it() {
    let objects = Arc::new(Memory::new());
    push(&over(&objects), &image(SIZE, 4), "one", &Push::default()).unwrap();
    objects.pass(DAY);
    // A map that is written when the volume was looked at, and whose manifest comes after the lists.
    let volume = Volume::open(&over(&objects), "one", "test", false).unwrap();
    volume.write_at(8192, &[7; 4096]).unwrap();
    volume.flush().unwrap();
    let beside = Arc::clone(&objects);
    let late = interrupted(
        &objects,
        |what, key| what == "list" && key == "map/",
        move || {
            beside.put(&crate::key_of(crate::Kind::Map, &[7; 32]), b"a map").unwrap();
        },
    );
    let done = clean(&late, DAY, false).unwrap();
    assert!(done.waiting > 0);
    let condemned = objects.contents()["gc/condemned"].clone();
    assert!(!String::from_utf8(condemned).unwrap().contains(&"07".repeat(32)));
}

#[test]
fn a_push_that_sleeps_until_its_lease_is_void_is_refused_and_nothing_is_harmed() {
    for force in [false, true] {
        let objects = Arc::new(Memory::new());
        let device = image(SIZE, 5);
        push(&over(&objects), &device, "old", &Push::default()).unwrap();
        if force {
            push(&over(&objects), &image(SIZE, 6), "one", &Push::default()).unwrap();
        }
        let before = objects.contents();
        crate::remove(&over(&objects), "old").unwrap();
        let asleep = Arc::clone(&objects);
        let is_manifest =
            |what: &str, key: &str| matches!(what, "create" | "replace") && key.ends_with("/manifest");
        let store = interrupted(&objects, is_manifest, move || {
            asleep.pass(2 * DAY);
            for _ in 0..3 {
                clean(&over(&asleep), DAY, false).unwrap();
                asleep.pass(2 * DAY);
            }
        });
        let refused = push(&store, &device, "one", &Push { force, ..Push::default() });
        assert!(matches!(refused, Err(Error::Refused(why)) if why.contains("too long")));
        assert!(is_whole(&objects));
        let now = Stored::open(&over(&objects), "one").map(|volume| all(&volume));
        match force {
            true => assert!(
                now.unwrap() == all(&Stored::open(&over(&Arc::new(Memory::holding(before))), "one").unwrap())
            ),
            false => assert!(matches!(now, Err(Error::NoVolume))),
        }
    }
}

#[test]
fn a_fork_of_what_changes_meanwhile_is_whole() {
    let objects = Arc::new(Memory::new());
    with_an_old_map(&objects);
    let meanwhile = Arc::clone(&objects);
    let store = interrupted(
        &objects,
        |what, key| what == "create" && key.ends_with("/manifest"),
        move || {
            let volume = Volume::open(&over(&meanwhile), "one", "test", false).unwrap();
            volume.write_at(4096, &[9; 4096]).unwrap();
            volume.close().unwrap();
            for _ in 0..3 {
                clean(&over(&meanwhile), DAY, false).unwrap();
                meanwhile.pass(2 * DAY);
            }
        },
    );
    fork(&store, "one", "two").unwrap();
    assert!(is_whole(&objects));
    let read = |name| all(&Stored::open(&over(&objects), name).unwrap());
    assert!(read("one") == read("two"));
}

/// A program whose fork comes late: before its first request that `is_late`, its source is written again, and three
/// clean-ups have removed what that was. With `dies` it is killed right after that request.
fn late_fork(
    objects: &Arc<Memory>,
    is_late: impl Fn(&str, &str) -> bool + Send + Sync + 'static,
    dies: bool,
) -> crate::Result<()> {
    let (meanwhile, was_late) = (Arc::clone(objects), AtomicBool::new(false));
    let hooked = Hooked::new(objects, move |what, key| {
        if was_late.load(Ordering::Relaxed) {
            return if dies { Fate::Killed } else { Fate::Done };
        }
        if is_late(what, key) {
            was_late.store(true, Ordering::Relaxed);
            let volume = Volume::open(&over(&meanwhile), "one", "test", false).unwrap();
            volume.write_at(4096, &[9; 4096]).unwrap();
            volume.close().unwrap();
            for _ in 0..3 {
                clean(&over(&meanwhile), DAY, false).unwrap();
                meanwhile.pass(2 * DAY);
            }
        }
        Fate::Done
    });
    fork(&Arc::new(Store::new(Arc::new(hooked), patience(), None)), "one", "two").map(drop)
}

#[test]
fn a_fork_whose_maker_is_killed_at_any_request_or_sleeps_for_days_is_whole_or_no_volume() {
    for is_trace in [false, true] {
        for (late, dies) in [("create", true), ("create", false), ("replace", true), ("replace", false)] {
            let objects = Arc::new(Memory::new());
            with_an_old_map(&objects);
            if is_trace {
                fork(&over(&objects), "one", "two").unwrap();
                crate::remove(&over(&objects), "two").unwrap();
            }
            let two = crate::key_of_manifest(&crate::id_of("two"));
            let done = late_fork(&objects, move |what, key| what == late && key == two, dies);
            // Late with its claim it looks again. Late with the volume itself it finds the claim void, which it is after
            // a day.
            let is_claim = late == "create" || is_trace;
            assert_eq!(done.is_ok(), is_claim && !dies, "{late}, {dies}: {done:?}");
            let two = Stored::open(&over(&objects), "two").map(|volume| all(&volume));
            assert_eq!(two.is_ok(), done.is_ok(), "{late}, {dies}");
            for _ in 0..3 {
                clean(&over(&objects), DAY, false).unwrap();
                assert!(is_whole(&objects));
                objects.pass(2 * DAY);
            }
            // What was claimed goes with the claim.
            assert_eq!(crate::stats(&over(&objects)).unwrap().unused_objects, 0, "{late}, {dies}");
            if done.is_err() {
                fork(&over(&objects), "one", "two").unwrap();
            }
            let read = |name| all(&Stored::open(&over(&objects), name).unwrap());
            assert!(is_whole(&objects) && (done.is_ok() || read("one") == read("two")));
        }
    }
}

/// The names of a store's volumes, and how many requests that took.
fn names(objects: &Arc<Memory>) -> (Vec<String>, u64) {
    let store = over(objects);
    let found = crate::volumes(&store, false).unwrap();
    (found.into_iter().map(|manifest| manifest.name).collect(), store.counts().reads)
}

#[test]
fn a_list_reads_nothing_of_volumes_that_were_removed() {
    let objects = Arc::new(Memory::new());
    push(&over(&objects), &image(SIZE, 3), "one", &Push::default()).unwrap();
    for number in 0..50 {
        fork(&over(&objects), "one", &format!("fork-{number}")).unwrap();
        crate::remove(&over(&objects), &format!("fork-{number}")).unwrap();
    }
    assert_eq!(names(&objects), (vec!["one".to_owned()], 2 + 51));
    clean(&over(&objects), DAY, false).unwrap();
    assert_eq!(names(&objects), (vec!["one".to_owned()], 2 + 1));
    // One that has the name of a removed one is there, before and after the next clean-up.
    fork(&over(&objects), "one", "fork-0").unwrap();
    push(&over(&objects), &image(SIZE, 3), "fork-1", &Push::default()).unwrap();
    crate::rename(&over(&objects), "fork-1", "fork-2").unwrap();
    Volume::create(&over(&objects), "fork-3", SIZE, "test").unwrap().close().unwrap();
    for reads in [2 + 5, 2 + 4] {
        assert_eq!(names(&objects), (["fork-0", "fork-2", "fork-3", "one"].map(str::to_owned).into(), reads));
        clean(&over(&objects), DAY, false).unwrap();
    }
}

#[test]
fn what_returns_beside_a_clean_up_is_listed() {
    let make: [fn(&Arc<Store>); 2] = [
        |store| drop(fork(store, "one", "two").unwrap()),
        |store| Volume::create(store, "two", SIZE, "test").unwrap().close().unwrap(),
    ];
    for (number, make) in make.into_iter().enumerate() {
        for when in 0.. {
            let objects = Arc::new(Memory::new());
            push(&over(&objects), &image(SIZE, 3), "one", &Push::default()).unwrap();
            fork(&over(&objects), "one", "two").unwrap();
            crate::remove(&over(&objects), "two").unwrap();
            let (beside, asked) = (Arc::clone(&objects), std::sync::atomic::AtomicU64::new(0));
            let store = interrupted(
                &objects,
                move |_, _| asked.fetch_add(1, Ordering::Relaxed) == when,
                move || make(&over(&beside)),
            );
            let done = clean(&store, DAY, false);
            if names(&objects).0 == ["one"] {
                assert!(when > 15, "{number}: at request {when} of {done:?}");
                break;
            }
            assert_eq!(names(&objects).0, ["one", "two"], "{number}: at request {when}");
            assert!(is_whole(&objects) && done.is_ok(), "{number}: at request {when}: {done:?}");
        }
    }
}

/// Compactions, counts and checks read other volumes, which their owners replace or remove meanwhile.
#[test]
fn what_is_replaced_while_it_is_looked_at_is_looked_at_again() {
    let look: [fn(&Arc<Store>); 3] = [
        |store| assert_eq!(crate::compact(store, "one", "test", 20).unwrap().emptied, 0),
        |store| assert_eq!(crate::stats(store).unwrap().unused_objects, 0),
        |store| {
            let objects = verify(store, &mut |finding| panic!("{}: {}", finding.volume, finding.problem));
            assert!(objects.unwrap() > 2);
        },
    ];
    for (look, is_removed) in look.into_iter().flat_map(|look| [(look, false), (look, true)]) {
        let objects = Arc::new(Memory::new());
        for (name, seed) in [("one", 3), ("two", 4)] {
            push(&over(&objects), &image(SIZE, seed), name, &Push::default()).unwrap();
        }
        let (map, _) = over(&objects).named("two").unwrap();
        let (map, beside) = (crate::key_of(crate::Kind::Map, &map.map), Arc::clone(&objects));
        let store = interrupted(
            &objects,
            move |what, key| what == "get" && key == map,
            move || {
                let force = Push { force: true, ..Push::default() };
                match is_removed {
                    true => crate::remove(&over(&beside), "two").unwrap(),
                    false => drop(push(&over(&beside), &image(SIZE, 5), "two", &force).unwrap()),
                }
                for _ in 0..2 {
                    clean(&over(&beside), Duration::ZERO, false).unwrap();
                    beside.pass(Duration::from_secs(2));
                }
            },
        );
        look(&store);
    }
}

/// A store that leaves something out of what it says.
fn lying(objects: &Arc<Memory>, about: &'static str) -> Arc<Store> {
    struct Lying(Arc<Memory>, &'static str);
    use crate::Result;
    use crate::objects::{Listed, Object, Version};
    impl Objects for Lying {
        fn get(&self, key: &str, most: u64) -> Result<Object> {
            match self.1 == "manifest" && key.ends_with("/manifest") {
                true => Err(Error::Missing(key.into())),
                false => self.0.get(key, most),
            }
        }
        fn range(&self, key: &str, offset: u64, len: u64) -> Result<Vec<u8>> {
            self.0.range(key, offset, len)
        }
        fn put(&self, key: &str, bytes: &[u8]) -> Result<()> {
            self.0.put(key, bytes)
        }
        fn create(&self, key: &str, bytes: &[u8]) -> Result<Version> {
            self.0.create(key, bytes)
        }
        fn replace(&self, key: &str, bytes: &[u8], version: &Version) -> Result<Version> {
            self.0.replace(key, bytes, version)
        }
        fn head(&self, key: &str) -> Result<Option<Listed>> {
            self.0.head(key)
        }
        fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed) -> Result<()>) -> Result<()> {
            let is_left_out = |key: &str| match self.1 {
                "list" | "both" => key.contains(&crate::key_of_manifest(&crate::id_of("two"))[..36]),
                "objects" => key.ends_with("/manifest"),
                _ => false,
            };
            self.0.list(prefix, &mut |listed| if is_left_out(&listed.key) { Ok(()) } else { each(listed) })
        }
        fn names(&self, prefix: &str) -> Result<Vec<String>> {
            let two = crate::key_of_manifest(&crate::id_of("two"));
            let mut names = self.0.names(prefix)?;
            match self.1 {
                // As a server does that ignores delimiters.
                "delimiter" => names.clear(),
                "names" | "both" => names.retain(|name| !two.contains(name.as_str())),
                _ => {}
            }
            Ok(names)
        }
        fn remove(&self, key: &str) -> Result<()> {
            self.0.remove(key)
        }
    }
    Arc::new(Store::new(Arc::new(Lying(Arc::clone(objects), about)), patience(), None))
}

#[test]
fn no_list_is_believed_alone() {
    for about in ["delimiter", "names", "list", "both", "objects", "manifest"] {
        let objects = Arc::new(Memory::new());
        push(&over(&objects), &image(SIZE, 7), "one", &Push::default()).unwrap();
        push(&over(&objects), &image(SIZE, 8), "two", &Push::default()).unwrap();
        let volume = Volume::open(&over(&objects), "two", "test", false).unwrap();
        volume.write_at(0, &[1; 4096]).unwrap();
        volume.close().unwrap();
        clean(&over(&objects), DAY, false).unwrap();
        for _ in 0..3 {
            objects.pass(2 * DAY);
            let done = clean(&lying(&objects, about), DAY, false);
            // What both kinds of lists leave out in part is still found.
            let is_found = matches!(about, "delimiter" | "names");
            assert_eq!(done.is_ok(), is_found, "{about}: {done:?}");
        }
        assert!(is_whole(&objects), "{about}");
        objects.pass(2 * DAY);
        clean(&over(&objects), DAY, false).unwrap();
    }
}

#[test]
fn what_is_none_of_this_format_stays_and_is_named() {
    let objects = Arc::new(Memory::new());
    push(&over(&objects), &image(SIZE, 9), "one", &Push::default()).unwrap();
    crate::remove(&over(&objects), "one").unwrap();
    for key in
        ["map/tiles/1.png", "chunk/data/x", "vol/readme", "lease/of-a-house", "gc/other", "vol/x/manifest"]
    {
        objects.put(key, b"of another program").unwrap();
    }
    let before = objects.contents();
    for _ in 0..2 {
        objects.pass(2 * DAY);
        let done = clean(&over(&objects), DAY, false).unwrap();
        assert_eq!(done.strange, 4);
        assert_eq!(done.strange_keys[0], "chunk/data/x");
    }
    let now = objects.contents();
    assert!(
        before
            .iter()
            .filter(|(_, bytes)| **bytes == b"of another program")
            .all(|(key, _)| now.contains_key(key))
    );
    assert!(!now.keys().any(|key| key.starts_with("chunk/") && !key.contains("data")));
}

#[test]
fn a_dry_run_writes_nothing() {
    let objects = Arc::new(Memory::new());
    push(&over(&objects), &image(SIZE, 10), "one", &Push::default()).unwrap();
    crate::remove(&over(&objects), "one").unwrap();
    let store = over(&objects);
    assert!(clean(&store, DAY, true).unwrap().waiting > 0);
    assert_eq!(store.counts().writes, 0);
}

#[test]
fn a_check_reads_the_store_and_not_what_is_kept_of_it() {
    let (objects, directory) = (Arc::new(Memory::new()), tempfile::tempdir().unwrap());
    let cached = || {
        let cache = crate::Cache::new(directory.path().to_owned(), 1 << 30);
        Arc::new(Store::new(Arc::clone(&objects) as Arc<dyn Objects>, patience(), Some(cache)))
    };
    let device = image(SIZE, 11);
    push(&cached(), &device, "one", &Push::default()).unwrap();
    let volume = Volume::open(&cached(), "one", "test", false).unwrap();
    volume.write_at(0, &[7; 100_000]).unwrap();
    volume.close().unwrap();
    let store = cached();
    all(&Stored::open(&store, "one").unwrap());
    let damage = |front: &str, remove: bool| {
        let mut contents = objects.contents();
        let mut key = contents.iter().filter(|(_, bytes)| bytes.len() > 5000).map(|(key, _)| key);
        let key = key.rfind(|key| key.starts_with(front)).unwrap().clone();
        match remove {
            true => drop(contents.remove(&key)),
            false => *contents.get_mut(&key).unwrap().last_mut().unwrap() ^= 1,
        }
        (key, Arc::new(Memory::holding(contents)))
    };
    for front in ["chunk/", "vol/"] {
        for remove in [false, true] {
            let (key, damaged) = damage(front, remove);
            let mut findings = Vec::new();
            let cache = crate::Cache::new(directory.path().to_owned(), 1 << 30);
            let store =
                Arc::new(Store::new(Arc::clone(&damaged) as Arc<dyn Objects>, patience(), Some(cache)));
            all(&Stored::open(&store, "one").unwrap());
            verify(&store, &mut |finding| findings.push(finding)).unwrap();
            assert_eq!(findings.len(), 1, "{findings:?}");
            assert!(
                findings[0].problem.contains(&key) && findings[0].problem.contains("push --"),
                "{findings:?}"
            );
            // Only a look at what is there finds a chunk that is damaged.
            if front == "chunk/" {
                let new = |how| push(&store, &device, "two", &how).unwrap().new_chunks;
                assert_eq!(new(Push { force: true, ..Push::default() }), u64::from(remove));
                assert_eq!(new(Push { repair: true, ..Push::default() }), u64::from(!remove));
                assert!(is_whole(&damaged));
            }
        }
    }
}

#[test]
fn a_volume_gets_another_name_with_its_snapshots_and_nothing_is_lost() {
    let objects = Arc::new(Memory::new());
    with_an_old_map(&objects);
    let store = over(&objects);
    fork(&store, "one", "one@first").unwrap();
    push(&store, &image(SIZE, 12), "taken", &Push::default()).unwrap();
    let read = |name: &str| Stored::open(&over(&objects), name).map(|volume| all(&volume));
    let wanted = read("one").unwrap();
    assert!(matches!(crate::rename(&store, "one", "taken"), Err(Error::Exists(_))));
    let volume = Volume::open(&store, "one", "test", false).unwrap();
    assert!(matches!(crate::rename(&store, "one", "two"), Err(Error::Open(_))));
    volume.close().unwrap();
    crate::rename(&store, "one", "two").unwrap();
    crate::rename(&store, "two", "one").unwrap();
    crate::rename(&store, "one", "two").unwrap();
    for _ in 0..3 {
        objects.pass(2 * DAY);
        clean(&store, DAY, false).unwrap();
    }
    assert!(is_whole(&objects) && read("two").unwrap() == wanted && read("two@first").unwrap() == wanted);
    assert!(matches!(read("one"), Err(Error::NoVolume)) && matches!(read("one@first"), Err(Error::NoVolume)));
    // Somebody opens it just then.
    let meanwhile = Arc::clone(&objects);
    let interrupted = interrupted(
        &objects,
        |what, key| what == "create" && key.ends_with("/manifest"),
        move || {
            drop(Volume::open(&over(&meanwhile), "two", "test", false).unwrap());
        },
    );
    assert!(matches!(crate::rename(&interrupted, "two", "three"), Err(Error::Conflict(_))));
    assert!(read("two").unwrap() == wanted && matches!(read("three"), Err(Error::NoVolume)));
}

#[test]
fn what_a_log_wrote_is_fetched_once_by_many_and_not_at_all_with_a_cache() {
    let (objects, directory) = (Arc::new(Memory::new()), tempfile::tempdir().unwrap());
    let device = Volume::create(&over(&objects), "one", 8 << 20, "test").unwrap();
    (0..8_u8).for_each(|at| {
        device.write_at(u64::from(at) << 20, &vec![at + 1; 1 << 20]).unwrap();
        device.flush().unwrap();
    });
    device.close().unwrap();
    let open = || {
        let cache = crate::Cache::new(directory.path().to_owned(), 1 << 30);
        Arc::new(Store::new(Arc::clone(&objects) as Arc<dyn Objects>, patience(), Some(cache)))
    };
    let read_by_many = || {
        let store = open();
        let volume = Stored::open(&store, "one").unwrap();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let volume = &volume;
                scope.spawn(move || {
                    volume.will_read(std::slice::from_ref(&(0..8 << 20)));
                    let mut block = [0; 4096];
                    for at in (0..8 << 20).step_by(65536).cycle().skip(thread * 16).take(128) {
                        volume.read_at(at, &mut block).unwrap();
                    }
                });
            }
        });
        drop(volume);
        store.counts()
    };
    let first = read_by_many();
    assert!(first.bytes_in < (8 << 20) + (1 << 20), "{first:?}");
    // A manifest.
    assert_eq!(read_by_many().reads, 1);
}

/// A copy of a store of which one is known to be safe.
#[test]
fn a_copy_of_a_store_is_tried_out_where_it_is() {
    let objects = Arc::new(Memory::new());
    let at = |objects: &Arc<Memory>, place: &str| {
        let store = Store::new(Arc::clone(objects) as Arc<dyn Objects>, patience(), None);
        Arc::new(store.at(place.to_owned()))
    };
    push(&at(&objects, "http://one s3://b"), &image(SIZE, 13), "one", &Push::default()).unwrap();
    let writes = |store: Arc<Store>| {
        crate::ready(&store).unwrap();
        store.counts().writes
    };
    assert_eq!(writes(at(&objects, "http://one s3://b")), 0);
    let copy = Arc::new(Memory::holding(objects.contents()));
    assert!(writes(at(&copy, "http://two s3://b")) > 8);
    assert_eq!(writes(at(&copy, "http://two s3://b")), 0);
    // What an earlier version tried out is tried again once.
    objects.remove(objects.contents().keys().find(|key| key.starts_with("tried/")).unwrap()).unwrap();
    assert!(writes(at(&objects, "http://one s3://b")) > 8);
}
