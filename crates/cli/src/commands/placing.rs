//! `plat placement`: policies and their parameters: what there is, what a volume says of itself, and changing that.

use std::ffi::OsStr;

use clap::Args;
use platfs::Error;
use platfs::placement::Placing;
use platfs::placement::inode::policy::DIRECTORY_POLICIES;
use platfs::placement::parameters::{self, Decides, Parameter, PlacingError};
use platfs::placement::policy::POLICIES;
use platfs::placing;
use platfs_host::path;
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use serde_json::{Map, Value, json};

use super::cage;
use super::json;
use crate::console::{Console, Failure};
use crate::door;
use crate::image;
use crate::reading::OpenImage;
use crate::sandbox;
use crate::text::Shown;
use crate::writing::{self, Target};

/// Arguments of `plat placement`.
#[derive(Args, Debug)]
#[command(
    after_help = "Without an image: all policies and parameters. What an image says of itself holds for every program \
                  of platfs that writes it, from the next mount or command on. Options of `plat mount` go over it."
)]
pub struct Placement {
    #[command(flatten)]
    image: Option<Target>,
    /// Has the volume say these: `alloc=POLICY`, `dirs=POLICY` or `PARAMETER=NUMBER`, also several with commas. A
    /// parameter without its policy chooses the first policy that has it.
    #[arg(short, long, value_name = "NAME=VALUE", requires = "image")]
    set: Vec<String>,
    /// Has the volume say nothing of this any more.
    #[arg(short, long, value_name = "NAME", requires = "image")]
    unset: Vec<String>,
    /// Has the volume say nothing at all any more.
    #[arg(long, requires = "image", conflicts_with = "unset")]
    clear: bool,
    /// Only shows what the volume would say.
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// What is shown, as JSON.
    #[arg(long)]
    json: bool,
}

/// Placement that a volume states, or why that is none.
type Kept = Result<Placing, PlacingError>;

impl Placement {
    pub(super) fn cage(&self) -> Option<sandbox::Plan> {
        self.image.as_ref().map_or_else(|| Some(cage::system()), |image| cage::changing(image.name()))
    }

    pub(super) fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        let Some(target) = &self.image else { return self.list(console) };
        let name = image::shown(target.name()).to_string();
        let mounted = path::is_directory(target.name());
        let kept = if mounted {
            let before = of_mount(target.name())?;
            let after = self.changed(&before).map_err(Failure::Usage)?;
            if let Some(placing) = after.as_ref().filter(|_| !self.dry_run) {
                keep_in_mount(target.name(), placing)?;
            }
            after.map_or(before, Ok)
        } else if self.dry_run || !self.changes() {
            let before = of_image(&OpenImage::open(target.name(), console)?)?;
            self.changed(&before).map_err(Failure::Usage)?.map_or(before, Ok)
        } else {
            self.keep_in_image(target, console)?
        };
        self.show(console, &name, &kept)
    }

    fn changes(&self) -> bool {
        self.clear || !self.set.is_empty() || !self.unset.is_empty()
    }

    fn keep_in_image(&self, target: &Target, console: &mut Console<'_>) -> Result<Kept, Failure> {
        let mut kept = Ok(Placing::default());
        writing::change(target, console, |image, _| {
            kept = of_image(image)?;
            if let Some(placing) = self.changed(&kept).map_err(Failure::Usage)? {
                placing::store(&image.volume, &placing).map_err(|error| image.whole(&error))?;
                kept = Ok(placing);
            }
            Ok(())
        })?;
        Ok(kept)
    }

    /// Returns the placement to state from now on, if a change was asked for. Words that were no placement go.
    fn changed(&self, before: &Kept) -> Result<Option<Placing>, String> {
        if !self.changes() {
            return Ok(None);
        }
        let mut placing = before.clone().unwrap_or_default();
        if self.clear {
            placing = Placing::default();
        }
        for name in &self.unset {
            if !placing.unset(name) {
                return Err(format!("--unset {name}: the volume says nothing of it"));
            }
        }
        for words in &self.set {
            let said = Placing::read(words).map_err(|error| format!("--set {words}: {error}"))?;
            placing = said.over(&placing);
        }
        placing::words(&placing).map_err(|error| error.to_string())?;
        Ok(Some(placing))
    }

    fn show(&self, console: &mut Console<'_>, name: &str, kept: &Kept) -> Result<(), Failure> {
        if let Err(error) = kept {
            console
                .warn(format!("{name}: what the volume says of its placement counts for nothing: {error}"));
        }
        let said = kept.clone().unwrap_or_default();
        let all = said.clone().completed();
        let (blocks, inodes) = (all.blocks.unwrap_or_default().name(), all.inodes.unwrap_or_default().name());
        let chosen = |known: &Parameter| match known.decides {
            Decides::Blocks => known.policies.contains(&blocks),
            Decides::Inodes => known.policies.contains(&inodes),
        };
        let known: Vec<Parameter> = parameters::parameters().into_iter().filter(chosen).collect();
        if self.json {
            let mut object = Map::new();
            object.insert("image".into(), name.into());
            object.insert("kept".into(), said.to_string().into());
            object.insert("alloc".into(), blocks.into());
            object.insert("dirs".into(), inodes.into());
            object.insert("parameters".into(), rows(&known, Some(&said)));
            return Ok(json::print(console.out, object)?);
        }
        let says = if said.is_empty() { "nothing".to_owned() } else { said.to_string() };
        writeln!(console.out, "{name}: says {says}; that is alloc={blocks}, dirs={inodes}")?;
        for Parameter { tunable, .. } in &known {
            let value = said.value(tunable.name).unwrap_or(tunable.default);
            let mark = if said.value(tunable.name).is_some() { "*" } else { " " };
            writeln!(console.out, "{mark} {:28} {value:>8}  {}", tunable.name, tunable.about)?;
        }
        Ok(())
    }

    fn list(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        let blocks = POLICIES.iter().map(|row| (row.name, row.summary));
        let inodes = DIRECTORY_POLICIES.iter().map(|row| (row.name, row.summary));
        let known = parameters::parameters();
        if self.json {
            let policies = |rows: &mut dyn Iterator<Item = (&str, &str)>| -> Value {
                rows.map(|(name, about)| json!({ "name": name, "about": about })).collect()
            };
            let mut object = Map::new();
            object.insert("alloc".into(), policies(&mut blocks.into_iter()));
            object.insert("dirs".into(), policies(&mut inodes.into_iter()));
            object.insert("parameters".into(), rows(&known, None));
            return Ok(json::print(console.out, object)?);
        }
        for (word, rows) in [("alloc", blocks.collect::<Vec<_>>()), ("dirs", inodes.collect())] {
            for (name, about) in rows {
                writeln!(console.out, "{:22} {about}", format!("{word}={name}"))?;
            }
        }
        for Parameter { tunable, policies, .. } in &known {
            let range = format!("{}..{}", tunable.least, tunable.most);
            let of = policies.join(", ");
            writeln!(
                console.out,
                "{:28} {:>8} {range:>16}  {} ({of})",
                tunable.name, tunable.default, tunable.about
            )?;
        }
        Ok(())
    }
}

fn rows(known: &[Parameter], said: Option<&Placing>) -> Value {
    let row = |Parameter { tunable, policies, decides }: &Parameter| {
        let value = said.and_then(|said| said.value(tunable.name));
        let mut row = json!({
            "name": tunable.name,
            "default": tunable.default,
            "least": tunable.least,
            "most": tunable.most,
            "about": tunable.about,
            "source": tunable.source.name(),
            "decides": match decides { Decides::Blocks => "alloc", Decides::Inodes => "dirs" },
            "policies": policies,
        });
        if said.is_some() {
            row["value"] = value.unwrap_or(tunable.default).into();
            row["kept"] = value.is_some().into();
        }
        row
    };
    known.iter().map(row).collect()
}

fn of_image(image: &OpenImage) -> Result<Kept, Failure> {
    placing::stored(&image.volume).map_err(|error| image.whole(&error))
}

/// Placement of a mount, whose root is asked for it.
#[expect(clippy::disallowed_methods, reason = "in a mount, where the server judges each call of the kernel")]
fn of_mount(name: &OsStr) -> Result<Kept, Failure> {
    let about = |what: String| Failure::about(Shown(name.as_encoded_bytes()), what);
    let path = path::whole(name).map_err(|error| about(error.to_string()))?;
    match door::mounted_on(&path) {
        Some(mount) if mount.kind == "fuse.plat" => {}
        _ => return Err(about("no mount of plat begins here".into())),
    }
    let mut value = vec![0; 64 << 10];
    match rustix::fs::getxattr(&path, placing::ATTRIBUTE, &mut value) {
        Ok(length) => Ok(placing::parse(value.get(..length).unwrap_or_default())),
        Err(Errno::NODATA) => Ok(Ok(Placing::default())),
        Err(error) => Err(about(explained(error))),
    }
}

#[expect(clippy::disallowed_methods, reason = "in a mount, where the server judges each call of the kernel")]
fn keep_in_mount(name: &OsStr, placing: &Placing) -> Result<(), Failure> {
    let words = placing.to_string();
    let done = if words.is_empty() {
        match rustix::fs::removexattr(name, placing::ATTRIBUTE) {
            Err(Errno::NODATA) => Ok(()),
            done => done,
        }
    } else {
        rustix::fs::setxattr(name, placing::ATTRIBUTE, words.as_bytes(), XattrFlags::empty())
    };
    done.map_err(|error| Failure::about(Shown(name.as_encoded_bytes()), explained(error)))
}

fn explained(error: Errno) -> String {
    match error {
        Errno::PERM => "only root can have a volume say how it is placed".into(),
        Errno::OPNOTSUPP => "the mount has no extended attributes (`noxattr`)".into(),
        error => Error::io("extended attributes", error.into()).to_string(),
    }
}
