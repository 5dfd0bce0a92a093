//! Counts of a mount: requests by kind, how long they took, bytes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fuse::Scheduled;
use serde_json::{Map, Value, json};

/// Classes of duration: class `n` holds those below 2^n times 128 ns, the last all longer ones.
const CLASSES: usize = 28;
/// Binary logarithm of the first class's end in nanoseconds.
const FIRST_LOG2: u32 = 7;

macro_rules! verbs {
    ($($variant:ident = $name:literal,)*) => {
        /// Kinds of requests.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Verb {
            $(#[doc = $name] $variant,)*
        }

        impl Verb {
            const ALL: &'static [Verb] = &[$(Verb::$variant,)*];

            /// Its name, which is that of the request.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Verb::$variant => $name,)* }
            }
        }
    };
}

verbs! {
    Lookup = "lookup",
    Forget = "forget",
    GetAttr = "getattr",
    SetAttr = "setattr",
    ReadLink = "readlink",
    Open = "open",
    OpenDir = "opendir",
    Access = "access",
    Read = "read",
    Write = "write",
    ReadDir = "readdir",
    StatFs = "statfs",
    GetXattr = "getxattr",
    SetXattr = "setxattr",
    ListXattr = "listxattr",
    RemoveXattr = "removexattr",
    Lseek = "lseek",
    Ioctl = "ioctl",
    Create = "create",
    TmpFile = "tmpfile",
    Link = "link",
    Unlink = "unlink",
    RmDir = "rmdir",
    Rename = "rename",
    Fallocate = "fallocate",
    CopyRange = "copy_file_range",
    Fsync = "fsync",
    SyncFs = "syncfs",
}

/// Counts of one kind.
#[derive(Default)]
struct Kind {
    failed: AtomicU64,
    nanoseconds: AtomicU64,
    classes: [AtomicU64; CLASSES],
}

/// The counts of a mount.
pub struct Counts {
    kinds: Vec<Kind>,
    /// Bytes read.
    pub read: AtomicU64,
    /// Bytes written.
    pub written: AtomicU64,
    /// Names listed.
    pub listed: AtomicU64,
}

impl Default for Counts {
    fn default() -> Self {
        Counts {
            kinds: Verb::ALL.iter().map(|_| Kind::default()).collect(),
            read: AtomicU64::new(0),
            written: AtomicU64::new(0),
            listed: AtomicU64::new(0),
        }
    }
}

/// Adds to a counter.
pub fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

fn of(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

fn class(took: u64) -> usize {
    let log2 = u64::BITS - took.leading_zeros();
    usize::try_from(log2.saturating_sub(FIRST_LOG2)).unwrap_or(CLASSES).min(CLASSES - 1)
}

impl Counts {
    /// Counts a request.
    pub fn took(&self, verb: Verb, took: Duration, failed: bool) {
        let Some(kind) = self.kinds.get(verb as usize) else { return };
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        add(&kind.nanoseconds, took);
        if let Some(count) = kind.classes.get(class(took)) {
            add(count, 1);
        }
        if failed {
            add(&kind.failed, 1);
        }
    }

    /// Requests of a kind.
    #[must_use]
    pub fn count(&self, verb: Verb) -> u64 {
        self.kinds.get(verb as usize).map_or(0, |kind| kind.classes.iter().map(of).sum())
    }

    /// Summary of the work on one line.
    #[must_use]
    pub fn summary(&self) -> String {
        let total: u64 = Verb::ALL.iter().map(|verb| self.count(*verb)).sum();
        format!(
            "{total} requests: {} lookups, {} names listed, {} reads of {} bytes, {} writes of {} bytes",
            self.count(Verb::Lookup),
            of(&self.listed),
            self.count(Verb::Read),
            of(&self.read),
            self.count(Verb::Write),
            of(&self.written)
        )
    }

    /// The requests by kind, those that never came left out.
    #[must_use]
    pub fn requests(&self) -> Value {
        let kinds = Verb::ALL.iter().zip(&self.kinds);
        let requests = kinds.filter_map(|(verb, kind)| {
            let counts: Vec<u64> = kind.classes.iter().map(of).collect();
            let count: u64 = counts.iter().sum();
            let counted = json!({
                "count": count,
                "failed": of(&kind.failed),
                "mean_ns": of(&kind.nanoseconds).checked_div(count)?,
                "p50_ns": percentile(&counts, count, 50),
                "p90_ns": percentile(&counts, count, 90),
                "p99_ns": percentile(&counts, count, 99),
            });
            Some((verb.name().to_owned(), counted))
        });
        Value::Object(requests.collect::<Map<_, _>>())
    }

    /// Bytes and names.
    #[must_use]
    pub fn amounts(&self) -> Value {
        json!({
            "bytes_read": of(&self.read),
            "bytes_written": of(&self.written),
            "names_listed": of(&self.listed),
        })
    }
}

/// Counts of the scheduler for the threads that serve.
#[must_use]
pub fn scheduled(now: &Scheduled) -> Value {
    json!({
        "threads": now.threads,
        "requests": now.requests,
        "turns": now.turns,
        "ran_ns": now.ran_ns,
        "waited_ns": now.waited_ns,
        "mean_wait_ns": now.waited_ns.checked_div(now.requests).unwrap_or(0),
        "gives_way": now.gives_way,
        "lowered": now.lowered,
        "raised": now.raised,
        "starved": now.starved,
    })
}

/// The end of the class in which that many of a hundred durations have ended.
fn percentile(counts: &[u64], count: u64, percent: u64) -> u64 {
    let wanted = (count.saturating_mul(percent)).div_ceil(100).max(1);
    let mut seen = 0;
    let at = counts.iter().position(|count| {
        seen += count;
        seen >= wanted
    });
    1 << (FIRST_LOG2 + u32::try_from(at.unwrap_or(0)).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_bounds_of_classes() {
        let counts = Counts::default();
        for _ in 0..98 {
            counts.took(Verb::Read, Duration::from_nanos(1000), false);
        }
        counts.took(Verb::Read, Duration::from_micros(100), false);
        counts.took(Verb::Read, Duration::from_secs(3600), true);
        let requests = counts.requests();
        assert_eq!(requests["read"]["count"], 100);
        assert_eq!(requests["read"]["failed"], 1);
        assert_eq!(requests["read"]["p50_ns"], 1024);
        assert_eq!(requests["read"]["p99_ns"], 131_072);
        assert!(requests.get("write").is_none());
        assert_eq!(class(0), 0);
        assert_eq!(class(127), 0);
        assert_eq!(class(128), 1);
    }
}
