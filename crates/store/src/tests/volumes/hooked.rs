//! A store in memory that asks a test before each request what becomes of it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::objects::{Listed, Memory, Object, Objects, Version};
use crate::{Error, Result};

/// Fate of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It is carried out and answered.
    Done,
    /// It is not carried out, and fails.
    Lost,
    /// It is carried out, and fails.
    Unanswered,
    /// It is carried out, and once more later.
    Twice,
    /// The program that makes it is gone.
    Killed,
}

/// A request that is on its way.
pub type Late = Box<dyn FnOnce(&Memory) + Send>;
type Decides = Box<dyn Fn(&str, &str) -> Fate + Send + Sync>;

/// The objects as one program sees them.
pub struct Hooked {
    pub inner: Arc<Memory>,
    pub late: Arc<Mutex<Vec<Late>>>,
    /// Time for which requests may take effect after they were answered.
    pub lingers: Duration,
    fate: Decides,
}

fn killed() -> Error {
    Error::Invalid("the program was killed".into())
}

impl Hooked {
    pub fn new(inner: &Arc<Memory>, fate: impl Fn(&str, &str) -> Fate + Send + Sync + 'static) -> Self {
        Hooked {
            inner: Arc::clone(inner),
            late: Arc::default(),
            lingers: Duration::ZERO,
            fate: Box::new(fate),
        }
    }

    fn read<T>(&self, what: &str, key: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        match (self.fate)(what, key) {
            Fate::Done | Fate::Twice => work(),
            Fate::Lost | Fate::Unanswered => Err(Error::Unavailable("no answer".into())),
            Fate::Killed => Err(killed()),
        }
    }

    fn write<T>(
        &self,
        what: &str,
        key: &str,
        work: impl Fn(&Memory) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let lost = || Error::Unavailable("no answer".into());
        match (self.fate)(what, key) {
            Fate::Done => work(&self.inner),
            Fate::Lost => Err(lost()),
            Fate::Killed => Err(killed()),
            Fate::Unanswered => work(&self.inner).and_then(|_| Err(lost())),
            Fate::Twice => {
                let done = work(&self.inner);
                self.late.lock().unwrap().push(Box::new(move |inner| drop(work(inner))));
                done
            }
        }
    }
}

impl Objects for Hooked {
    fn get(&self, key: &str, most: u64) -> Result<Object> {
        self.read("get", key, || self.inner.get(key, most))
    }

    fn range(&self, key: &str, offset: u64, len: u64) -> Result<Vec<u8>> {
        self.read("range", key, || self.inner.range(key, offset, len))
    }

    fn put(&self, key: &str, bytes: &[u8]) -> Result<()> {
        let (own, bytes) = (key.to_owned(), bytes.to_vec());
        self.write("put", key, move |inner| inner.put(&own, &bytes))
    }

    fn create(&self, key: &str, bytes: &[u8]) -> Result<Version> {
        let (own, bytes) = (key.to_owned(), bytes.to_vec());
        self.write("create", key, move |inner| inner.create(&own, &bytes))
    }

    fn replace(&self, key: &str, bytes: &[u8], version: &Version) -> Result<Version> {
        let (own, bytes, version) = (key.to_owned(), bytes.to_vec(), version.clone());
        self.write("replace", key, move |inner| inner.replace(&own, &bytes, &version))
    }

    fn head(&self, key: &str) -> Result<Option<Listed>> {
        self.read("head", key, || self.inner.head(key))
    }

    fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed) -> Result<()>) -> Result<()> {
        self.read("list", prefix, || self.inner.list(prefix, each))
    }

    fn names(&self, prefix: &str) -> Result<Vec<String>> {
        self.read("names", prefix, || self.inner.names(prefix))
    }

    fn remove(&self, key: &str) -> Result<()> {
        let own = key.to_owned();
        self.write("remove", key, move |inner| inner.remove(&own))
    }

    fn lingers(&self) -> Duration {
        self.lingers
    }
}
