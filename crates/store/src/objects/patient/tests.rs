//! A store that answers as a script says.

use std::sync::atomic::AtomicUsize;

use super::*;
use crate::objects::Memory;

/// Answers to requests: by the operation and its number.
type Script = Box<dyn Fn(&str, usize) -> Option<Error> + Send + Sync>;

/// A store that says something else before it carries out what is asked.
struct Scripted {
    memory: Memory,
    script: Script,
    asked: AtomicUsize,
}

impl Scripted {
    fn new(script: impl Fn(&str, usize) -> Option<Error> + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Scripted { memory: Memory::new(), script: Box::new(script), asked: AtomicUsize::new(0) })
    }

    fn number(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    fn said(&self, what: &str) -> Result<()> {
        let number = self.asked.fetch_add(1, Ordering::Relaxed);
        (self.script)(what, number).map_or(Ok(()), Err)
    }
}

impl Objects for Scripted {
    fn get(&self, key: &str, most: u64) -> Result<Object> {
        self.said("get")?;
        self.memory.get(key, most)
    }

    fn range(&self, key: &str, offset: u64, len: u64) -> Result<Vec<u8>> {
        self.said("range")?;
        self.memory.range(key, offset, len)
    }

    fn put(&self, key: &str, bytes: &[u8]) -> Result<()> {
        self.said("put")?;
        self.memory.put(key, bytes)
    }

    fn create(&self, key: &str, bytes: &[u8]) -> Result<Version> {
        self.said("create")?;
        self.memory.create(key, bytes)
    }

    fn replace(&self, key: &str, bytes: &[u8], version: &Version) -> Result<Version> {
        self.said("replace")?;
        self.memory.replace(key, bytes, version)
    }

    fn head(&self, key: &str) -> Result<Option<Listed>> {
        self.said("head")?;
        self.memory.head(key)
    }

    fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed) -> Result<()>) -> Result<()> {
        self.said("list")?;
        let mut handed = 0;
        self.memory.list(prefix, &mut |listed| {
            handed += 1;
            if handed == 4 {
                self.said("list on")?;
            }
            each(listed)
        })
    }

    fn names(&self, prefix: &str) -> Result<Vec<String>> {
        self.said("names")?;
        self.memory.names(prefix)
    }

    fn remove(&self, key: &str) -> Result<()> {
        self.said("remove")?;
        self.memory.remove(key)
    }
}

fn away() -> Error {
    Error::Unavailable("away".into())
}

fn patient(store: &Arc<Scripted>, limit: u64) -> Patient {
    let patience = Patience { limit: Duration::from_secs(limit), ..Patience::simulated() };
    Patient::new(Arc::clone(store) as Arc<dyn Objects>, patience)
}

#[test]
fn an_outage_is_waited_out_by_time_and_not_by_tries() {
    let store = Scripted::new(|_, number| (number < 9).then(away));
    patient(&store, 600).put("a", b"x").unwrap();
    assert_eq!(store.number(), 10);
}

#[test]
fn after_the_patience_each_request_is_tried_once_until_the_store_answers() {
    let store = Scripted::new(|_, number| (number < 1000).then(away));
    let patient = patient(&store, 30);
    let why = patient.put("a", b"x").unwrap_err().to_string();
    let tries = store.number();
    assert!(tries > 2 && why.contains(&format!("tried {tries} times")), "{tries} {why}");
    for more in 1..5 {
        patient.head("a").unwrap_err();
        assert_eq!(store.number(), tries + more);
    }
    store.asked.store(1000, Ordering::Relaxed);
    patient.put("a", b"x").unwrap();
    // The next outage is another.
    store.asked.store(995, Ordering::Relaxed);
    patient.put("a", b"x").unwrap();
    assert_eq!(store.number(), 1001);
}

#[test]
fn a_store_that_names_a_time_is_left_alone_so_long() {
    let busy = || Error::Busy { why: "slow down".into(), after: Duration::from_secs(100) };
    let store = Scripted::new(move |_, _| Some(busy()));
    let why = patient(&store, 350).put("a", b"x").unwrap_err();
    assert!(matches!(why, Error::Busy { .. }) && why.is_passing(), "{why}");
    assert_eq!(store.number(), 5, "at 0, 100, 200, 300 seconds, and at the end");
}

#[test]
fn what_was_allowed_before_and_is_refused_is_waited_for() {
    let refused = || Error::Refused("expired".into());
    let store = Scripted::new(move |_, number| (number != 1 && number < 5).then(refused));
    let patient = patient(&store, 600);
    assert!(matches!(patient.put("a", b"x"), Err(Error::Refused(_))));
    assert_eq!(store.number(), 1, "one that was never allowed is refused at once");
    patient.put("a", b"x").unwrap();
    patient.put("a", b"y").unwrap();
    assert_eq!(store.number(), 6);
    assert_eq!(patient.get("a", 9).unwrap().bytes, b"y");
}

#[test]
fn a_refusal_of_a_conditional_write_counts_only_if_the_store_shows_its_reason() {
    let exists = || Error::Exists("a".into());
    let store = Scripted::new(move |what, number| (what == "create" && number < 4).then(exists));
    let version = patient(&store, 600).create("a", b"x").unwrap();
    let conflict = || Error::Conflict("a".into());
    let odd = Scripted::new(move |what, number| (what == "replace" && number < 5).then(conflict));
    odd.memory.put("a", b"x").unwrap();
    let (patient_of, now) = (patient(&odd, 600), odd.memory.get("a", 9).unwrap().version);
    patient_of.replace("a", b"y", &now).unwrap();
    // What really is there is said at once.
    let asked = odd.number();
    assert!(matches!(patient_of.replace("a", b"z", &now), Err(Error::Conflict(_))));
    assert!(matches!(patient_of.create("a", b"z"), Err(Error::Exists(_))));
    assert_eq!(odd.number(), asked + 4);
    odd.memory.remove("a").unwrap();
    assert!(matches!(patient_of.replace("a", b"z", &version), Err(Error::Conflict(_))));
}

#[test]
fn who_gives_up_waits_no_longer() {
    let store = Scripted::new(|_, _| Some(away()));
    let patience = Patience { limit: Duration::from_secs(3600), ..Patience::default() };
    let patient = Arc::new(Patient::new(Arc::clone(&store) as Arc<dyn Objects>, patience));
    let waiting = {
        let patient = Arc::clone(&patient);
        std::thread::spawn(move || patient.put("a", b"x"))
    };
    while store.number() < 3 {
        std::thread::yield_now();
    }
    patient.give_up();
    assert!(waiting.join().unwrap().is_err());
    let asked = store.number();
    assert!(patient.put("a", b"x").is_err());
    assert_eq!(store.number(), asked + 1);
}

#[test]
fn a_list_that_breaks_off_goes_on_behind_what_was_handed_over() {
    let store = Scripted::new(|what, number| (what == "list on" && number < 2).then(away));
    let keys = ["vol/a", "vol/a/x", "vol/a-b", "vol/b", "vol/c", "vol/d"];
    keys.iter().for_each(|key| store.memory.put(key, b"").unwrap());
    let patient = patient(&store, 600);
    let mut seen = Vec::new();
    let listed = patient.list("vol/", &mut |listed| {
        seen.push(listed.key);
        Ok(())
    });
    listed.unwrap();
    seen.sort_unstable();
    assert_eq!(store.number(), 4, "two tries, each asked to go on");
    let mut wanted = keys.map(str::to_owned);
    wanted.sort_unstable();
    assert_eq!(seen, wanted);
    // What the caller says is no failure of the store.
    let (before, passing) = (store.number(), patient.list("vol/", &mut |_| Err(away())));
    assert!(matches!(passing, Err(Error::Unavailable(why)) if why == "away"));
    assert_eq!(store.number(), before + 1);
}

#[test]
fn a_list_without_order_does_not_go_on() {
    let mut handed = ListProgress::default();
    handed.begin("vol/").unwrap();
    assert!(handed.is_new("vol/b", "vol/").unwrap() && handed.is_new("vol/a", "vol/").unwrap());
    assert!(handed.begin("vol/").unwrap_err().to_string().contains("no order"));
    // In order until it broke off, and not behind that place.
    let mut handed = ListProgress::default();
    handed.begin("vol/").unwrap();
    assert!(handed.is_new("vol/a", "vol/").unwrap() && handed.is_new("vol/b", "vol/").unwrap());
    handed.begin("vol/").unwrap();
    assert!(!handed.is_new("vol/a", "vol/").unwrap() && !handed.is_new("vol/b", "vol/").unwrap());
    assert!(handed.is_new("vol/d", "vol/").unwrap());
    assert!(handed.is_new("vol/c", "vol/").unwrap_err().to_string().contains("no order"));
    // The first try handed over `a` and `c` and broke off. The second shows that the list has no order: `b` comes behind `c`.
    let mut handed = ListProgress::default();
    handed.begin("vol/").unwrap();
    assert!(handed.is_new("vol/a", "vol/").unwrap() && handed.is_new("vol/c", "vol/").unwrap());
    handed.begin("vol/").unwrap();
    assert!(!handed.is_new("vol/a", "vol/").unwrap() && !handed.is_new("vol/c", "vol/").unwrap());
    assert!(handed.is_new("vol/b", "vol/").unwrap_err().to_string().contains("no order"));
    let mut long = ListProgress { count: LISTED_MAX, ..ListProgress::default() };
    let said = long.is_new("vol/a", "vol/").unwrap_err().to_string();
    assert!(said.contains("vol/") && said.contains(&LISTED_MAX.to_string()), "{said}");
}
