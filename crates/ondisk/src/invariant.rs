//! States that this program's own code must never reach, said where they are noticed.
//!
//! Owns the error and the macro of a broken invariant, which every crate uses. What the bytes of a volume, an archive or
//! a peer can bring about is no such state: that is an ordinary error ([`crate::corrupt`]).

use std::panic::Location;

/// A broken invariant: a defect of this program, not of the volume or the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("internal error, please report it: {invariant} (does not hold at {place})")]
pub struct BrokenInvariant {
    invariant: &'static str,
    place: &'static Location<'static>,
}

impl BrokenInvariant {
    /// Reports that `invariant`, a sentence that should be true, is not.
    ///
    /// # Panics
    /// In debug builds, so that tests find the defect where it shows first. In release builds one failed call is better
    /// than a dead mount.
    #[must_use]
    #[track_caller]
    pub fn new(invariant: &'static str) -> Self {
        let place = Location::caller();
        if cfg!(debug_assertions) {
            panic!("{invariant} (does not hold at {place})");
        }
        BrokenInvariant { invariant, place }
    }

    /// The sentence that should be true.
    #[must_use]
    pub fn invariant(&self) -> &'static str {
        self.invariant
    }
}

impl From<BrokenInvariant> for std::io::Error {
    fn from(broken: BrokenInvariant) -> Self {
        std::io::Error::other(broken)
    }
}

/// Values of which one state can't be, for [`invariant!`](crate::invariant!).
pub trait Invariant {
    /// The value without the state that can't be.
    type Value;

    /// The value, or nothing if the invariant is broken.
    fn held(self) -> Option<Self::Value>;
}

impl Invariant for bool {
    type Value = ();

    fn held(self) -> Option<()> {
        self.then_some(())
    }
}

impl<T> Invariant for Option<T> {
    type Value = T;

    fn held(self) -> Option<T> {
        self
    }
}

impl<T, E> Invariant for Result<T, E> {
    type Value = T;

    fn held(self) -> Option<T> {
        self.ok()
    }
}

/// Unwraps what an invariant says is there: a condition, an [`Option`] or a [`Result`].
///
/// If it is broken, the calling function panics in debug builds, and else returns [`BrokenInvariant`] as its error. The
/// text is the sentence that should be true, with its number in `docs/invariants.md` if it has one.
///
/// ```
/// use ondisk::invariant;
/// use ondisk::invariant::BrokenInvariant;
///
/// fn last(blocks: &[u64]) -> Result<u64, BrokenInvariant> {
///     Ok(*invariant!(blocks.last(), "a run has a block"))
/// }
/// assert_eq!(last(&[3, 4]), Ok(4));
/// ```
#[macro_export]
macro_rules! invariant {
    ($value:expr, $invariant:literal $(,)?) => {
        match $crate::invariant::Invariant::held($value) {
            Some(value) => value,
            None => return Err($crate::invariant::BrokenInvariant::new($invariant).into()),
        }
    };
}

/// Unwraps as [`invariant!`](crate::invariant!) where no error can be returned.
///
/// If the invariant is broken, it panics in debug builds. In release builds the fallback stands in: a value that does
/// the least harm, or `return`.
///
/// ```
/// use ondisk::invariant_or;
///
/// fn last(blocks: &[u64]) -> u64 {
///     *invariant_or!(blocks.last(), return 0, "a run has a block")
/// }
/// assert_eq!(last(&[3, 4]), 4);
/// ```
#[macro_export]
macro_rules! invariant_or {
    ($value:expr, $fallback:expr, $invariant:literal $(,)?) => {
        match $crate::invariant::Invariant::held($value) {
            Some(value) => value,
            None => {
                let _ = $crate::invariant::BrokenInvariant::new($invariant);
                $fallback
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(numbers: &[u8]) -> Result<u8, BrokenInvariant> {
        invariant!(numbers.len() < 4, "there are at most three numbers");
        Ok(*invariant!(numbers.get(1), "there is a second number"))
    }

    #[test]
    fn what_holds_is_unwrapped() {
        assert_eq!(second(&[5, 6]), Ok(6));
    }

    #[test]
    #[cfg_attr(debug_assertions, should_panic = "there is a first number")]
    fn a_fallback_stands_in_for_a_broken_invariant() {
        let first = |numbers: &[u8]| -> u8 { *invariant_or!(numbers.first(), &9, "there is a first number") };
        assert_eq!((first(&[5]), first(&[])), (5, 9));
    }

    #[test]
    #[cfg_attr(debug_assertions, should_panic = "there is a second number")]
    fn a_broken_invariant_is_named() {
        let broken = second(&[5]).unwrap_err();
        assert_eq!(broken.invariant(), "there is a second number");
        assert!(broken.to_string().contains("invariant.rs"), "{broken}");
    }
}
