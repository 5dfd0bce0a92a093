//! One step for many things, some at a time: requests to a store are waited for together.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::{Error, Result};

/// Does `work` with each, in any order, on at most `most` threads: what each thread gathered, or a failure.
pub(crate) fn together<T: Sync, G: Default + Send>(
    all: &[T],
    most: usize,
    work: impl Fn(&T, &mut G) -> Result<()> + Sync,
) -> Result<Vec<G>> {
    let next = AtomicUsize::new(0);
    let some = || {
        let mut gathered = G::default();
        while let Some(one) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            // After a failure nobody begins another.
            work(one, &mut gathered).inspect_err(|_| next.store(all.len(), Ordering::Relaxed))?;
        }
        Ok(gathered)
    };
    if most.min(all.len()) <= 1 {
        return Ok(vec![some()?]);
    }
    std::thread::scope(|scope| {
        // Those that can't be made leave their work to the others, and this one works, too.
        let begin = |_| std::thread::Builder::new().spawn_scoped(scope, some).ok();
        let threads: Vec<_> = (1..most.min(all.len())).map_while(begin).collect();
        let own = some();
        let lost = || Error::Unavailable("a thread ended before its work".into());
        let others = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(lost())));
        std::iter::once(own).chain(others).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_done_once_and_a_failure_ends_all() {
        let all: Vec<u64> = (0..1000).collect();
        let sum = |one: &u64, gathered: &mut Vec<u64>| {
            gathered.push(*one);
            Ok(())
        };
        let mut done = together(&all, 7, sum).unwrap().concat();
        done.sort_unstable();
        assert_eq!(done, all);
        assert!(together(&all[..0], 7, sum).unwrap().concat().is_empty());
        let failing = |one: &u64, _: &mut ()| match one {
            500 => Err(Error::NoVolume),
            _ => Ok(()),
        };
        assert!(matches!(together(&all, 7, failing), Err(Error::NoVolume)));
    }
}
