//! The listener for events of any thread: it prints them, or logs them.

use std::sync::{Arc, Mutex};

use crate::locks::locked;

type Hear = dyn Fn(&str) + Send + Sync;

/// The place of one hearer. A later one takes the place of an earlier.
pub(crate) struct Hearer(Mutex<Option<Arc<Hear>>>);

impl Hearer {
    pub(crate) const fn none() -> Hearer {
        Hearer(Mutex::new(None))
    }

    pub(crate) fn set(&self, hear: impl Fn(&str) + Send + Sync + 'static) {
        *locked(&self.0) = Some(Arc::new(hear));
    }

    pub(crate) fn tell(&self, text: &str) {
        // Not called under the lock: it may wait for a terminal.
        let hear = locked(&self.0).clone();
        if let Some(hear) = hear {
            hear(text);
        }
    }
}
