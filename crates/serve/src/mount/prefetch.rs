//! Reads, in the background and side by side, what programs read in an earlier run, as a trace of that run says
//! (`plat mount --prefetch`, docs/trace.md). What was read lies in memory or in the cache of a store when it is asked for.
//!
//! Excludes the trace itself, which is `trace`'s. It is a hint: paths that are not there any more, and whatever fails, are
//! passed over.

use std::collections::HashSet;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use platfs::Volume;

/// Most bytes of a trace that are looked at, and most different reads of it.
const TRACE_MAX: u64 = 64 << 20;
const READS_MAX: usize = 1 << 20;
/// Reads side by side.
const THREADS: usize = 16;
/// Bytes that are read at once, aligned: one trace has many reads of the same.
const STEP: u64 = 512 << 10;

/// A step of a file.
pub type Wanted = (Vec<u8>, u64);

/// Reads of a trace, under way.
pub struct Prefetch {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Prefetch {
    /// Reads a trace.
    ///
    /// # Errors
    /// The trace can't be read, or is none.
    pub fn wanted(trace: &Path) -> io::Result<Vec<Wanted>> {
        let (_, file) = platfs_host::open_named(trace, false)?;
        let file = file.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "is no regular file"))?;
        let mut text = Vec::new();
        file.take(TRACE_MAX).read_to_end(&mut text)?;
        wanted(&text)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "is no trace by `plat mount --trace`"))
    }

    /// Begins with what is wanted.
    #[must_use]
    pub fn start(volume: &Volume, wanted: Vec<Wanted>) -> Self {
        let wanted = Arc::new(wanted);
        let (stop, next) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let mut threads = Vec::new();
        for _ in 0..THREADS.min(wanted.len()) {
            let (wanted, stop, next) = (Arc::clone(&wanted), Arc::clone(&stop), Arc::clone(&next));
            let volume = volume.at_time(platfs_image::clock::now());
            let work = move || {
                while !stop.load(Ordering::Relaxed)
                    && let Some(one) = wanted.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    read(&volume, one);
                }
            };
            // With fewer threads it takes longer.
            threads.extend(std::thread::Builder::new().name("prefetch".into()).spawn(work));
        }
        Prefetch { stop, threads }
    }
}

impl Drop for Prefetch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

fn read(volume: &Volume, (path, offset): &Wanted) {
    let mut buffer = vec![0; usize::try_from(STEP).unwrap_or(0)];
    if let Ok(number) = volume.resolve(path) {
        // A read of it reports what is wrong.
        let _ = volume.read_at(number, *offset, &mut buffer);
    }
}

/// Ranges that were read, in order and once each; nothing if this is no trace.
fn wanted(text: &[u8]) -> Option<Vec<Wanted>> {
    let mut lines = text.split(|byte| *byte == b'\n');
    if lines.next() != Some(super::trace::HEAD.trim_ascii_end().as_bytes()) {
        return None;
    }
    let (mut seen, mut found) = (HashSet::new(), Vec::new());
    for line in lines {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let [_, _, b"read", path, offset, len] = fields[..] else { continue };
        let number = |text| std::str::from_utf8(text).ok()?.parse::<u64>().ok();
        let (Some(path), Some(offset), Some(len)) = (unescaped(path), number(offset), number(len)) else {
            continue;
        };
        let end = offset.saturating_add(len.clamp(1, TRACE_MAX));
        for step in offset / STEP..end.div_ceil(STEP) {
            if found.len() < READS_MAX && seen.insert((path.clone(), step)) {
                found.push((path.clone(), step * STEP));
            }
        }
    }
    Some(found)
}

/// A path as a trace has it: three octal digits behind a backslash are a byte.
fn unescaped(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first != b'\\' {
            out.push(*first);
            continue;
        }
        let (digits, behind) = rest.split_first_chunk::<3>()?;
        let digit = |byte: u8| (b'0'..=b'7').contains(&byte).then(|| u32::from(byte - b'0'));
        let value = digit(digits[0])? * 64 + digit(digits[1])? * 8 + digit(digits[2])?;
        out.push(u8::try_from(value).ok()?);
        rest = behind;
    }
    out.starts_with(b"/").then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_of_a_trace_are_found_once_and_nonsense_is_passed_over() {
        let text = b"PLATCALLS 1\n1.0 7 read /a\\040b 0 4096\n1.0 7 read /a\\040b 4096 4096\n1.0 7 stat /c\n\
            1.0 7 read /d 600000 900000\n1.0 7 read - 0 1\n1.0 7 read /e\\9 0 1\n1.0 7 read /f x 1\n\xff\n1.0 7 read /g 0\n";
        let step = |path: &[u8], number: u64| (path.to_vec(), number * STEP);
        let found = wanted(text).unwrap();
        assert_eq!(found, [step(b"/a b", 0), step(b"/d", 1), step(b"/d", 2)]);
        assert!(wanted(b"1.0 7 read /a 0 1\n").is_none());
        let endless = format!("PLATCALLS 1\n1.0 7 read /a {} {}\n", u64::MAX, u64::MAX);
        assert!(wanted(endless.as_bytes()).unwrap().len() < 200);
    }
}
