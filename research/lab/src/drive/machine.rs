//! Parameters of a machine that can be set for a run, so that what is not known of a published machine can be varied.
//!
//! Owns: the names of the parameters and their ranges. Excludes: what they mean ([`Drive`]).

use super::{Drive, Stable};

/// A parameter: its name, its largest value, what it is, and how it is set.
struct Parameter {
    name: &'static str,
    most: u64,
    about: &'static str,
    set: fn(&mut Drive, u64),
}

const GIB: u64 = 1 << 20;

const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "processors",
        most: 1024,
        about: "processors",
        set: |drive, to| drive.cpus = small(to),
    },
    Parameter {
        name: "call",
        most: 1 << 40,
        about: "nanoseconds of a call",
        set: |drive, to| drive.call = to,
    },
    Parameter {
        name: "page",
        most: 1 << 40,
        about: "nanoseconds of a page",
        set: |drive, to| drive.page = to,
    },
    Parameter {
        name: "cache",
        most: 64 * GIB,
        about: "KiB of the buffer cache",
        set: |drive, to| drive.cache = to << 10,
    },
    Parameter {
        name: "waiting",
        most: 64 * GIB,
        about: "KiB of files that may wait to be written",
        set: |drive, to| drive.waiting = to << 10,
    },
    Parameter {
        name: "burst",
        most: 64 * GIB,
        about: "KiB that a writer adds between looks at that limit",
        set: |drive, to| drive.burst = to << 10,
    },
    Parameter {
        name: "stable",
        most: 2,
        about: "a flush waits for: 0 nothing, 1 metadata of its own, 2 all",
        set: |drive, to| drive.stable = [Stable::Taken, Stable::Own, Stable::All][small(to).min(2)],
    },
    Parameter {
        name: "joins",
        most: 1,
        about: "1: neighbours that wait become one request",
        set: |drive, to| drive.joins = to == 1,
    },
    Parameter {
        name: "gap",
        most: 1 << 40,
        about: "nanoseconds between two requests",
        set: |drive, to| drive.gap = to,
    },
    Parameter {
        name: "command",
        most: 1 << 40,
        about: "nanoseconds of a command on its way, 0: none is sent alone",
        set: |drive, to| drive.command = to,
    },
    Parameter {
        name: "together",
        most: 64 * GIB,
        about: "KiB of a file that are written behind",
        set: |drive, to| drive.together = to << 10,
    },
    Parameter {
        name: "request",
        most: GIB,
        about: "KiB of the largest request",
        set: |drive, to| drive.request = to.max(4) << 10,
    },
    Parameter {
        name: "depth",
        most: 1 << 20,
        about: "writes that wait at the drive at most, among which it chooses",
        set: |drive, to| drive.depth = to.max(1),
    },
    Parameter {
        name: "running",
        most: 64 * GIB,
        about: "KiB of writes that are on their way to the drive at most",
        set: |drive, to| drive.running = to.max(4) << 10,
    },
    Parameter {
        name: "unpack",
        most: 1 << 40,
        about: "nanoseconds that tar computes for each entry",
        set: |drive, to| drive.unpack = to,
    },
    Parameter {
        name: "scan",
        most: 1 << 40,
        about: "nanoseconds of a free run that is looked at under its group's lock",
        set: |drive, to| drive.scan = to,
    },
    Parameter {
        name: "names",
        most: 1 << 40,
        about: "nanoseconds of a change of names under its directory's lock",
        set: |drive, to| drive.names = to,
    },
];

fn small(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// A parameter and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ParameterSetting {
    name: &'static str,
    value: u64,
}

impl std::fmt::Display for ParameterSetting {
    /// As it is said on the command line.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "machine {}={}", self.name, self.value)
    }
}

impl ParameterSetting {
    /// Reads `name=value`.
    ///
    /// # Errors
    /// The fault of the text, and what would be right.
    pub(crate) fn read(text: &str) -> Result<ParameterSetting, String> {
        let (name, value) = text.split_once('=').ok_or_else(|| format!("{text}: say name=value"))?;
        let names = || {
            let rows = PARAMETERS.iter().map(|row| format!("{} ({})", row.name, row.about));
            rows.collect::<Vec<_>>().join(", ")
        };
        let row = PARAMETERS.iter().find(|row| row.name == name);
        let row = row.ok_or_else(|| format!("a machine has no {name}; it has {}", names()))?;
        let value = value.parse().map_err(|_| format!("{text}: {value} is not a whole number"))?;
        if value > row.most {
            return Err(format!("{text}: at most {}", row.most));
        }
        Ok(ParameterSetting { name: row.name, value })
    }
}

impl Drive {
    /// The drive in a machine with these changes.
    pub(crate) fn changed(&'static self, changes: &[ParameterSetting]) -> &'static Drive {
        if changes.is_empty() {
            return self;
        }
        let mut drive = *self;
        for ParameterSetting { name, value } in changes {
            if let Some(row) = PARAMETERS.iter().find(|row| row.name == *name) {
                (row.set)(&mut drive, *value);
            }
        }
        // As long as the program: a drive is a row of a table, and a run makes a few.
        Box::leak(Box::new(drive))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_set_by_name_and_others_are_refused() {
        let change = |text: &str| ParameterSetting::read(text).unwrap();
        let drive = Drive::named("ide-2000").unwrap();
        let other = drive.changed(&[change("waiting=8"), change("stable=2"), change("joins=0")]);
        assert_eq!((other.waiting, other.stable, other.joins), (8 << 10, Stable::All, false));
        assert_eq!((other.cache, other.name), (drive.cache, drive.name));
        assert_eq!(change("gap=7").to_string(), "machine gap=7");
        for (wrong, said) in
            [("gap", "name=value"), ("speed=1", "it has"), ("gap=x", "number"), ("stable=3", "at most 2")]
        {
            let error = ParameterSetting::read(wrong).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
