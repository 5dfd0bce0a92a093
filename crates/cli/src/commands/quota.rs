//! `plat quota`: what users, groups and projects use and may use, of an image or a mount.

mod list;
mod projects;
mod show;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use clap::Args;
use ondisk::quota::QuotaKind;
use platfs::quota::{Graces, Limits, Record};
use platfs_host::path;
use rustix::fs::OFlags;

use super::cage;
use crate::console::{Console, Failure};
use crate::mount::quotas::{self, Deed, Report};
use crate::owner::Names;
use crate::reading::OpenImage;
use crate::sandbox;
use crate::size::parse_size;
use crate::text::Shown;
use crate::writing::{self, Target};
use platfs_image::clock;

/// Arguments of `plat quota`.
#[derive(Args, Debug)]
pub struct Quota {
    #[command(flatten)]
    image: Target,
    /// Files and directories, with `--set-project`.
    paths: Vec<OsString>,
    /// A user, by name or number.
    #[arg(short, long, value_name = "USER", group = "whose")]
    user: Option<String>,
    /// A group, by name or number.
    #[arg(short, long, value_name = "GROUP", group = "whose")]
    group: Option<String>,
    /// A project, by name or number.
    #[arg(short = 'P', long, value_name = "PROJECT", group = "whose")]
    project: Option<String>,
    /// All of a kind: `user`, `group` or `project`.
    #[arg(short, long, value_name = "KIND", group = "whose", value_parser = parse_kind)]
    kind: Option<QuotaKind>,
    /// Bytes that may be exceeded for a while; 0 for no limit.
    #[arg(long, value_name = "BYTES", value_parser = parse_size, help_heading = "Limits")]
    block_soft: Option<u64>,
    /// Bytes that may not be exceeded; 0 for no limit.
    #[arg(long, value_name = "BYTES", value_parser = parse_size, help_heading = "Limits")]
    block_hard: Option<u64>,
    /// Inodes that may be exceeded for a while; 0 for no limit.
    #[arg(long, value_name = "COUNT", value_parser = parse_size, help_heading = "Limits")]
    inode_soft: Option<u64>,
    /// Inodes that may not be exceeded; 0 for no limit.
    #[arg(long, value_name = "COUNT", value_parser = parse_size, help_heading = "Limits")]
    inode_hard: Option<u64>,
    /// The time for which soft limits of space may be exceeded: `2w`, `7d`, `12h`, `30m`, or seconds. With a user, group or project: from now on.
    #[arg(long, value_name = "TIME", value_parser = parse_time, help_heading = "Limits")]
    grace: Option<u32>,
    /// The same for inodes.
    #[arg(long, value_name = "TIME", value_parser = parse_time, help_heading = "Limits")]
    inode_grace: Option<u32>,
    /// Begins to count, and so switches the feature `quota` on: `user,group,project`.
    #[arg(long, value_name = "KINDS", value_delimiter = ',', value_parser = parse_kind, help_heading = "Counting")]
    on: Vec<QuotaKind>,
    /// Ends the counting. All limits of these kinds go.
    #[arg(long, value_name = "KINDS", value_delimiter = ',', value_parser = parse_kind, help_heading = "Counting")]
    off: Vec<QuotaKind>,
    /// Counts again what all files hold.
    #[arg(long, help_heading = "Counting")]
    recount: bool,
    /// Makes files part of a project. New files in directories among them are part of it too.
    #[arg(long, value_name = "PROJECT", help_heading = "Projects")]
    set_project: Option<String>,
    /// With all that is in directories.
    #[arg(short, long, requires = "set_project", help_heading = "Projects")]
    recursive: bool,
    /// Writes the limits of a kind to standard output, as `setquota -b` reads them.
    #[arg(long, help_heading = "Lists")]
    export: bool,
    /// Sets the limits of a kind from such a list; `-` is standard input.
    #[arg(long, value_name = "FILE", help_heading = "Lists", conflicts_with = "export")]
    import: Option<OsString>,
    /// Says what would be done, and changes nothing.
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

fn parse_kind(text: &str) -> Result<QuotaKind, String> {
    let found = QuotaKind::ALL.into_iter().find(|kind| kind.name() == text);
    found.ok_or_else(|| "not user, group or project".to_owned())
}

/// Seconds, or a number of minutes, hours, days or weeks.
fn parse_time(text: &str) -> Result<u32, String> {
    let (number, unit) = match text.char_indices().last() {
        Some((at, unit)) if unit.is_ascii_alphabetic() => (text.get(..at).unwrap_or_default(), unit),
        _ => (text, 's'),
    };
    let each = match unit {
        's' => 1,
        'm' => 60,
        'h' => 60 * 60,
        'd' => 24 * 60 * 60,
        'w' => 7 * 24 * 60 * 60,
        _ => 0,
    };
    let seconds = number.parse::<u32>().ok().and_then(|number| number.checked_mul(each));
    seconds
        .filter(|_| each > 0)
        .ok_or_else(|| "not a time: a number, with s, m, h, d or w behind it".to_owned())
}

/// Source of quota: an open image, or a mount by its server.
enum Source<'s> {
    Image(&'s OpenImage),
    Mount(&'s File, &'s str),
}

impl Source<'_> {
    fn perform(&self, deed: Deed) -> Result<Report, Failure> {
        match self {
            Source::Image(image) => quotas::perform(&image.volume, deed).map_err(|error| image.whole(&error)),
            Source::Mount(file, name) => quotas::ask(file, deed).map_err(|why| Failure::about(name, why)),
        }
    }

    fn records(&self, kind: QuotaKind) -> Result<Report, Failure> {
        self.perform(Deed::Show(kind, 0))
    }

    fn record(&self, kind: QuotaKind, id: u32) -> Result<Record, Failure> {
        let all = self.records(kind)?.records;
        let found = all.into_iter().find(|record| record.id == id);
        Ok(found.unwrap_or(Record { id, ..Record::default() }))
    }

    /// The kinds that are counted.
    fn kinds(&self) -> Result<Vec<QuotaKind>, Failure> {
        match self {
            Source::Image(image) => Ok(image.volume.quota().kinds()),
            // A question that changes nothing.
            Source::Mount(..) => {
                let report = QuotaKind::ALL.into_iter().find_map(|kind| self.records(kind).ok());
                Ok(report.map_or_else(Vec::new, |report| report.kinds))
            }
        }
    }
}

/// Limits as they were given: those that were not stay.
#[derive(Clone, Copy)]
struct Given {
    soft_bytes: Option<u64>,
    hard_bytes: Option<u64>,
    soft_inodes: Option<u64>,
    hard_inodes: Option<u64>,
}

impl Given {
    fn is_some(self) -> bool {
        [self.soft_bytes, self.hard_bytes, self.soft_inodes, self.hard_inodes].iter().any(Option::is_some)
    }

    fn over(self, old: Limits) -> Limits {
        Limits {
            soft_bytes: self.soft_bytes.unwrap_or(old.soft_bytes),
            hard_bytes: self.hard_bytes.unwrap_or(old.hard_bytes),
            soft_inodes: self.soft_inodes.unwrap_or(old.soft_inodes),
            hard_inodes: self.hard_inodes.unwrap_or(old.hard_inodes),
        }
    }
}

impl Quota {
    pub(super) fn cage(&self) -> Option<sandbox::Plan> {
        let plan = cage::changing(self.image.name())?;
        let list = self.import.as_ref().map(PathBuf::from);
        Some(cage::with_files(plan, Names::FILES.iter().map(PathBuf::from).chain(list)))
    }

    pub(super) fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        self.check_arguments()?;
        if let Some(project) = &self.set_project {
            let project = id_of(QuotaKind::Project, project)?;
            return projects::set(self, project, console);
        }
        let name = self.image.name();
        if path::is_directory(name) {
            let shown = Shown(name.as_bytes()).to_string();
            let file = directory(name).map_err(|error| Failure::about(&shown, error))?;
            return self.work(&Source::Mount(&file, &shown), console);
        }
        if self.changes() && !self.dry_run {
            return writing::change(&self.image, console, |image, console| {
                self.work(&Source::Image(image), console)
            });
        }
        let image = OpenImage::open(name, console)?;
        self.work(&Source::Image(&image), console)
    }

    fn given(&self) -> Given {
        Given {
            soft_bytes: self.block_soft,
            hard_bytes: self.block_hard,
            soft_inodes: self.inode_soft,
            hard_inodes: self.inode_hard,
        }
    }

    fn has_grace(&self) -> bool {
        self.grace.is_some() || self.inode_grace.is_some()
    }

    fn changes(&self) -> bool {
        let counting = self.recount || !self.on.is_empty() || !self.off.is_empty();
        counting || self.given().is_some() || self.has_grace() || self.import.is_some()
    }

    fn check_arguments(&self) -> Result<(), Failure> {
        let usage = |what: &str| Err(Failure::Usage(what.to_owned()));
        if self.given().is_some() && self.whose()?.is_none_or(|(_, id)| id.is_none()) {
            return usage("limits are those of one `--user`, `--group` or `--project`");
        }
        if self.set_project.is_none() && !self.paths.is_empty() {
            return usage("paths are for `--set-project`");
        }
        if self.json && (self.changes() || self.export || self.set_project.is_some()) {
            return usage("`--json` is for what is shown");
        }
        Ok(())
    }

    /// The kind that is meant, and the id if it is one.
    fn whose(&self) -> Result<Option<(QuotaKind, Option<u32>)>, Failure> {
        let named = [
            (QuotaKind::User, &self.user),
            (QuotaKind::Group, &self.group),
            (QuotaKind::Project, &self.project),
        ];
        for (kind, name) in named {
            if let Some(name) = name {
                return Ok(Some((kind, Some(id_of(kind, name)?))));
            }
        }
        Ok(self.kind.map(|kind| (kind, None)))
    }

    fn work(&self, source: &Source<'_>, console: &mut Console<'_>) -> Result<(), Failure> {
        let whose = self.whose()?;
        let kind = whose.map_or(QuotaKind::User, |(kind, _)| kind);
        if self.export {
            return list::export(console.out, kind, &source.records(kind)?.records);
        }
        if !self.changes() {
            return show::show(self, source, whose, console);
        }
        let mut deeds = Vec::new();
        if !self.on.is_empty() || !self.off.is_empty() {
            deeds.push(Deed::Switch(quotas::bits(&self.on), quotas::bits(&self.off)));
        }
        if self.recount {
            deeds.push(Deed::Recount);
        }
        if let Some(file) = &self.import {
            deeds.extend(list::import(file, kind)?);
        }
        self.deeds_for_ids(source, whose, &mut deeds)?;
        for deed in deeds {
            if self.dry_run {
                show::plan(console.out, deed)?;
            } else {
                let report = source.perform(deed)?;
                if deed == Deed::Recount {
                    writeln!(console.out, "{} counts corrected", report.count)?;
                }
            }
        }
        Ok(())
    }

    /// Limits and graces that were given.
    fn deeds_for_ids(
        &self,
        source: &Source<'_>,
        whose: Option<(QuotaKind, Option<u32>)>,
        deeds: &mut Vec<Deed>,
    ) -> Result<(), Failure> {
        if let Some((kind, Some(id))) = whose {
            if self.given().is_some() {
                let old = source.record(kind, id)?;
                deeds.push(Deed::Limit(kind, id, self.given().over(old.limits)));
            }
            if self.has_grace() {
                let now = u64::try_from(clock::now().seconds).unwrap_or(0);
                let end = |grace: Option<u32>| grace.map_or(0, |grace| now + u64::from(grace));
                deeds.push(Deed::End(kind, id, end(self.grace), end(self.inode_grace)));
            }
        } else if self.has_grace() {
            let kinds = match whose {
                Some((kind, _)) => vec![kind],
                None => source.kinds()?,
            };
            for kind in kinds {
                let old = source.records(kind)?.graces;
                let bytes = self.grace.unwrap_or(old.bytes);
                deeds.push(Deed::Grace(
                    kind,
                    Graces { bytes, inodes: self.inode_grace.unwrap_or(old.inodes) },
                ));
            }
        }
        Ok(())
    }
}

fn id_of(kind: QuotaKind, text: &str) -> Result<u32, Failure> {
    let id = Names::of_host(kind).id(text);
    id.ok_or_else(|| {
        Failure::Usage(format!(
            "{text}: this host knows no {kind} of that name, and it is no number up to {}",
            u32::MAX - 1
        ))
    })
}

fn directory(path: &OsStr) -> std::io::Result<File> {
    path::open(path, OFlags::RDONLY | OFlags::DIRECTORY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(
            ["2w", "7d", "12h", "30m", "5s", "90"].map(parse_time),
            [1_209_600, 604_800, 43_200, 1800, 5, 90].map(Ok)
        );
        for wrong in ["", "d", "1y", "-1", "1.5h", "99999999d"] {
            assert!(parse_time(wrong).is_err(), "{wrong}");
        }
    }
}
