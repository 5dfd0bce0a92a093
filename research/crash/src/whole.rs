//! Calls that change the volume as a whole: its label, what it counts, its size.

use platfs::ondisk::quota::QuotaKind;
use platfs::quota::Limits;
use platfs::{Error, Volume};
use platfs_reshape::resize::{Watch, grow_in_use, shrink_in_use, size_in_use};
use platfs_reshape::tune::{Field, Request, tune_in_use};

use crate::calls::Caller;
use crate::model::{KINDS, OWNER, VolumeState};

/// Nobody calls it off.
struct NeverCancelled;

impl Watch for NeverCancelled {
    fn goes_on(&self, _: u64) -> bool {
        true
    }
}

/// Turns a refusal into an error of the library.
fn refused(error: &platfs_reshape::Error) -> Error {
    Error::Unsupported(error.to_string())
}

impl Caller<'_> {
    /// A call that is stable when it returns, or refused.
    fn change(
        &mut self,
        verb: impl FnOnce(&Volume) -> Result<(), Error>,
        change: impl FnOnce(&mut VolumeState),
    ) {
        let is_refusal = |error: &Error| {
            matches!(
                error,
                Error::NoSpace | Error::NoInodes | Error::Unsupported(_) | Error::TooLargeForLog { .. }
            )
        };
        let mut is_done = false;
        self.call_unless(
            is_refusal,
            |volume| verb(volume).inspect(|()| is_done = true),
            |model| change(&mut model.whole),
        );
        if is_done {
            self.names_are_stable();
        }
    }

    /// Another label, by `plat tune` on a mount.
    pub(crate) fn relabel(&mut self, label: &[u8]) {
        let request = Request { fields: vec![Field::Label(label.to_vec())], ..Request::default() };
        self.change(
            |volume| volume.change_fields(|raw| tune_in_use(raw, &request))?.map_err(|error| refused(&error)),
            |whole| whole.label = label.to_vec(),
        );
    }

    /// Begins to count a kind, or ends it.
    pub(crate) fn switch_counting(&mut self, at: usize) {
        let on = !self.model.whole.counted[at];
        self.change(
            |volume| match on {
                true => volume.quota().switch_on(&[KINDS[at]]),
                false => volume.quota().switch_off(&[KINDS[at]]),
            },
            |whole| {
                whole.counted[at] = on;
                if at == 0 {
                    whole.limit = on.then_some(0);
                }
            },
        );
    }

    /// Another limit for an owner, which is promised with the next sync.
    pub(crate) fn limit(&mut self, bytes: u64) {
        if self.model.whole.limit.is_some() {
            let limits = Limits { hard_bytes: bytes, ..Limits::default() };
            self.call(
                |volume| volume.quota().set_limits(QuotaKind::User, OWNER, limits),
                |model| model.whole.limit = Some(bytes),
            );
        }
    }

    /// Makes the volume larger or smaller, if it can have that size.
    pub(crate) fn resize(&mut self, bytes: u64) {
        let before = self.model.whole.blocks;
        let Ok(after) = size_in_use(self.volume, bytes) else { return };
        let wanted = after.blocks;
        if wanted == before {
            return;
        }
        let is_larger = wanted > before;
        self.change(
            |volume| {
                let done = match is_larger {
                    true => grow_in_use(volume, bytes, u64::MAX),
                    false => shrink_in_use(volume, bytes, &NeverCancelled).map(|(after, _)| after),
                };
                done.map(drop).map_err(|error| refused(&error))
            },
            |whole| whole.blocks = wanted,
        );
    }
}
