//! The file of results: JSON lines, only ever appended to, one value per line (research/docs/lab.md). Owns its shape, and what
//! becomes of a run that was cut off; what the figures mean is left to their writers and to the report.

use serde::de::{Deserializer, MapAccess, Visitor};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::digest;

/// One line. Kinds that this version does not know are read as `Other`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(crate) enum Record {
    Session(Session),
    Cell(Cell),
    Verdict(Verdict),
    Size(Size),
    Curve(Curve),
    Aging(Aging),
    Criteria(Criteria),
    Skipped(Skipped),
    #[serde(other)]
    Other,
}

/// One run of the command; the lines behind it are its.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Session {
    pub(crate) version: String,
    pub(crate) machine: Machine,
    /// ISO 8601, UTC.
    pub(crate) started: String,
    pub(crate) command: String,
}

/// Machine that a session ran on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Machine {
    pub(crate) cpus: u64,
    pub(crate) memory_mib: u64,
    pub(crate) kernel: String,
    pub(crate) arch: String,
}

/// One run of one cell of a table: one system, one case, one seed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Cell {
    pub(crate) table: String,
    pub(crate) case: String,
    /// A policy, a variant, or a peer.
    pub(crate) system: String,
    pub(crate) seed: u64,
    /// Its place among the jobs of its table, where several ran at once: lines stand in the order in which they ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) job: Option<usize>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub(crate) parameters: Map<String, Value>,
    pub(crate) figures: Figures,
    /// Published figures for it, under the same names where the meaning is the same.
    #[serde(skip_serializing_if = "Figures::is_empty")]
    pub(crate) published: Figures,
    /// Of all before, and of the program that found it. Without it a cell is not taken for one of this program.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) digest: String,
}

/// Judgement of something that a table should show.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Verdict {
    pub(crate) table: String,
    pub(crate) text: String,
    pub(crate) holds: bool,
    pub(crate) detail: String,
}

/// A ratio that was published, and ours of the same cells.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Size {
    pub(crate) table: String,
    pub(crate) case: String,
    pub(crate) figure: String,
    pub(crate) system: String,
    /// System or case that it is divided by.
    pub(crate) over: String,
    /// Ours, the half of its interval of 95 % over seeds, and the published one with its own bounds.
    pub(crate) ratio: Option<f64>,
    pub(crate) half: f64,
    pub(crate) published: Option<f64>,
    pub(crate) low: Option<f64>,
    pub(crate) high: Option<f64>,
    pub(crate) class: Class,
}

/// How far a ratio is from the published one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Class {
    /// Within 25 %, or within what the document itself varies.
    Reproduced,
    /// Within a factor of two.
    Near,
    /// Larger or smaller than the baseline as published, and no more.
    Direction,
    /// The other way round.
    Not,
    /// There is nothing to divide by.
    #[default]
    Undefined,
}

impl Class {
    pub(crate) const ALL: [Class; 5] =
        [Class::Reproduced, Class::Near, Class::Direction, Class::Not, Class::Undefined];

    /// Name in results.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Class::Reproduced => "reproduced",
            Class::Near => "near",
            Class::Direction => "direction only",
            Class::Not => "not",
            Class::Undefined => "undefined",
        }
    }
}

/// A plot of lines.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Curve {
    pub(crate) table: String,
    pub(crate) name: String,
    /// Names of the axes.
    pub(crate) x: String,
    pub(crate) y: String,
    pub(crate) series: Vec<Line>,
}

/// A named line of a plot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

/// A volume at one moment of an aging run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Aging {
    pub(crate) table: String,
    pub(crate) case: String,
    pub(crate) system: String,
    pub(crate) seed: u64,
    /// Number of the frame, or progress in the run's own unit: it rises.
    pub(crate) step: f64,
    /// Share of the volume in use.
    pub(crate) fullness: f64,
    pub(crate) operations: u64,
    pub(crate) extents_per_file: f64,
    pub(crate) free_runs: u64,
    /// Free clusters in runs of 2^n to 2^(n+1) - 1, for n from 0.
    pub(crate) free_bins: Vec<u64>,
    /// Share in use of each group, 255 for all of it.
    pub(crate) groups: Vec<u8>,
    /// Clusters of the volume, to which `files` refer.
    pub(crate) clusters: u64,
    /// Some of the files: those in the most pieces.
    pub(crate) files: Vec<Extents>,
}

/// Where a file lies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Extents {
    pub(crate) name: String,
    /// First cluster and length of each run, in file order.
    pub(crate) runs: Vec<(u64, u64)>,
}

/// Counts of an engine: what mballoc's criteria did, and everything else.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Criteria {
    pub(crate) table: String,
    pub(crate) case: String,
    pub(crate) system: String,
    pub(crate) seed: u64,
    /// Hits by criterion, in the order in which they are tried.
    pub(crate) hits: Figures,
    /// Extents scanned by criterion.
    pub(crate) scanned: Figures,
    /// Groups considered, and searches that found nothing, by criterion.
    #[serde(skip_serializing_if = "Figures::is_empty")]
    pub(crate) considered: Figures,
    #[serde(skip_serializing_if = "Figures::is_empty")]
    pub(crate) useless: Figures,
    /// Every counter of the engine.
    #[serde(skip_serializing_if = "Figures::is_empty")]
    pub(crate) counters: Figures,
}

/// Case that could not run, and why.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Skipped {
    pub(crate) table: String,
    pub(crate) system: String,
    pub(crate) why: String,
}

/// Numbers by name, in the order in which they are to be shown: a flat JSON object.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Figures(pub(crate) Vec<(String, f64)>);

impl Figures {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The figure of this name.
    pub(crate) fn get(&self, name: &str) -> Option<f64> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    }
}

impl<N: Into<String>> FromIterator<(N, f64)> for Figures {
    fn from_iter<I: IntoIterator<Item = (N, f64)>>(figures: I) -> Figures {
        Figures(figures.into_iter().map(|(name, value)| (name.into(), value)).collect())
    }
}

impl Serialize for Figures {
    /// Whole numbers without a point; what JSON has no number for is left out.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in self.0.iter().filter(|(_, value)| value.is_finite()) {
            #[expect(clippy::cast_possible_truncation, reason = "whole and below 2^53")]
            if *value == value.trunc() && value.abs() < 9e15 {
                map.serialize_entry(name, &(*value as i64))?;
            } else {
                map.serialize_entry(name, value)?;
            }
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Figures {
    /// Values that are no numbers are passed over.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Figures, D::Error> {
        struct Flat;
        impl<'de> Visitor<'de> for Flat {
            type Value = Figures;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of numbers")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Figures, A::Error> {
                let mut figures = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, Value>()? {
                    figures.extend(value.as_f64().map(|value| (name, value)));
                }
                Ok(Figures(figures))
            }
        }
        deserializer.deserialize_map(Flat)
    }
}

macro_rules! records {
    ($($kind:ident)*) => {
        $(impl From<$kind> for Record {
            fn from(value: $kind) -> Record {
                Record::$kind(value)
            }
        })*
    };
}
records!(Session Cell Verdict Size Curve Aging Criteria Skipped);

/// A file of results that is being appended to, by any number of threads.
#[derive(Clone, Debug)]
pub(crate) struct Results {
    file: Arc<Mutex<File>>,
    path: PathBuf,
}

impl Results {
    /// Opens a file or makes it, drops a line that was cut off, and begins a session.
    ///
    /// # Errors
    /// Errors of the file system, with the name of the file.
    pub(crate) fn append(path: &Path) -> Result<Results, String> {
        let failure = |error| format!("{}: {error}", path.display());
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path).map_err(failure)?;
        let whole = whole_lines(&mut file).map_err(failure)?;
        file.set_len(whole).map_err(failure)?;
        let results = Results { file: Arc::new(Mutex::new(file)), path: path.to_owned() };
        results.add(Session::now())?;
        Ok(results)
    }

    /// Appends one line, with one write: a reader at the same time sees all of it or an unfinished last line.
    ///
    /// # Errors
    /// Errors of the file system, with the name of the file.
    pub(crate) fn add(&self, record: impl Into<Record>) -> Result<(), String> {
        let failure = |error: &dyn fmt::Display| format!("{}: {error}", self.path.display());
        let mut line = serde_json::to_string(&record.into()).map_err(|error| failure(&error))?;
        line.push('\n');
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(line.as_bytes()).map_err(|error| failure(&error))
    }
}

/// Length of a file up to behind its last end of line.
fn whole_lines(file: &mut File) -> std::io::Result<u64> {
    const PIECE: u64 = 1 << 16;
    let mut end = file.seek(SeekFrom::End(0))?;
    while end > 0 {
        let start = end.saturating_sub(PIECE);
        file.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        Read::by_ref(file).take(end - start).read_to_end(&mut bytes)?;
        if let Some(at) = bytes.iter().rposition(|byte| *byte == b'\n') {
            return Ok(start + u64::try_from(at).unwrap_or(0) + 1);
        }
        end = start;
    }
    Ok(0)
}

/// All lines of files, in order; a last line that was cut off is passed over.
///
/// # Errors
/// A file that can't be read, a whole line that is not of this format.
pub(crate) fn read(paths: &[PathBuf]) -> Result<Vec<Record>, String> {
    let mut records = Vec::new();
    for path in paths {
        let text = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let text = String::from_utf8_lossy(&text);
        for (number, line) in (1u64..).zip(text.split_inclusive('\n')) {
            let Some(line) = line.strip_suffix('\n') else { break };
            if line.trim().is_empty() {
                continue;
            }
            let record = serde_json::from_str(line)
                .map_err(|error| format!("{}: line {number}: {error}", path.display()))?;
            records.push(record);
        }
    }
    Ok(records)
}

/// Reads the records that this very program left in a file of results, if there is one. Cells of other programs, or with figures that were
/// changed since, are left out, and counted on standard error.
///
/// # Errors
/// It can't be read, or holds something else.
pub(crate) fn earlier(path: Option<&Path>) -> Result<Vec<Record>, String> {
    let Some(path) = path.filter(|path| path.exists()) else { return Ok(Vec::new()) };
    let (mut records, mut strangers) = (read(&[path.to_owned()])?, 0_u64);
    for record in &mut records {
        if let Record::Cell(cell) = record
            && cell.right_digest() != cell.digest
        {
            strangers += 1;
            // Its place stays: what stands before it is not another cell's.
            *record = Record::Other;
        }
    }
    if strangers > 0 {
        eprintln!(
            "{}: {strangers} cells are of another program or were changed: they are not used",
            path.display()
        );
    }
    Ok(records)
}

impl Cell {
    /// The digest that it has if this program found it and nobody changed it.
    pub(crate) fn right_digest(&self) -> String {
        let plain = Cell { digest: String::new(), ..self.clone() };
        digest::of_text(&serde_json::to_string(&plain).unwrap_or_default())
    }
}

impl Session {
    /// This process on this machine.
    fn now() -> Session {
        Session {
            version: env!("CARGO_PKG_VERSION").into(),
            machine: Machine::this(),
            started: utc(SystemTime::now()),
            command: command(std::env::args()),
        }
    }
}

/// A command line, the program without its directory.
fn command(mut arguments: impl Iterator<Item = String>) -> String {
    let program = arguments.next().unwrap_or_default();
    let name = Path::new(&program).file_name().map(|name| name.to_string_lossy().into_owned());
    name.into_iter().chain(arguments).collect::<Vec<_>>().join(" ")
}

impl Machine {
    /// As far as the system shows it: what is not known is zero or empty.
    fn this() -> Machine {
        let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let total = memory.lines().find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next());
        let kilobytes: u64 = total.and_then(|number| number.parse().ok()).unwrap_or(0);
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let cpus = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
        Machine {
            cpus: u64::try_from(cpus).unwrap_or(0),
            memory_mib: kilobytes / 1_024,
            kernel: kernel.trim().into(),
            arch: std::env::consts::ARCH.into(),
        }
    }
}

/// ISO 8601 to the second. Years are counted from March, so that a leap day comes last.
fn utc(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (days, second) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let from_march = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * from_march + 2) / 5 + 1, (from_march + 2) % 12 + 1);
    let year = year + era * 400 + u64::from(month <= 2);
    let (hour, minute) = (second / 3_600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}Z", second % 60)
}

#[cfg(test)]
mod tests;
