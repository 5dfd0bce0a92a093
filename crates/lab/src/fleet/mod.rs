//! `plat-lab fleet`: what a host fetches of each version of an image that it has the last version of.
//!
//! A tree is updated again and again, as package managers do it: some files grow, some are new, some go. Each version
//! becomes an image in several ways, and what is new of it is counted in pieces of several sizes, cut at fixed places
//! and by content. The last two columns of a way are its worst update and all of them together.
//!
//! Owns: the ways and the table. Excludes: the tree (`versions`) and the counting (`pieces`).

mod pieces;
#[cfg(test)]
mod tests;
mod versions;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use platfs::device::FileDevice;
use platfs_image::Builder;

use crate::summary::Summary;
use crate::table::align;
use pieces::{CUTS, Cut, Pieces};
use versions::Version;

/// Options of `plat-lab fleet`.
#[derive(clap::Args)]
pub(crate) struct FleetOptions {
    /// A directory of which the first version is made (regular files, directories and links); else a tree of a seed.
    #[arg(long, value_name = "DIR")]
    tree: Option<PathBuf>,
    /// Files of the tree of a seed.
    #[arg(long, default_value_t = 3000, value_parser = clap::value_parser!(u32).range(10..=100_000))]
    files: u32,
    /// How often the tree is updated.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    updates: u32,
    /// Seed of tree and updates.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Ways, separated by commas: fresh, align, like, mke2fs, in-place.
    #[arg(long, value_delimiter = ',', default_value = "fresh,align,like,mke2fs,in-place")]
    ways: Vec<String>,
    /// Where images are made; they are removed.
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// A line per way, update and cut: way,update,cut,new bytes.
    #[arg(long)]
    csv: bool,
}

/// How an image is made of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Fresh,
    Align,
    Like,
    Mke2fs,
    InPlace,
}

const WAYS: [(&str, Way, &str); 5] = [
    ("fresh", Way::Fresh, "plat build"),
    ("align", Way::Align, "plat build --align 512K"),
    ("like", Way::Like, "plat build --like"),
    ("mke2fs", Way::Mke2fs, "mke2fs -d"),
    ("in-place", Way::InPlace, "changed in place"),
];

/// Bytes at whose multiples data begin where they are aligned.
const ALIGN: u64 = 512 << 10;

/// One way through all versions.
struct Chain {
    way: Way,
    label: &'static str,
    image: PathBuf,
    /// Of the last version.
    had: Vec<Pieces>,
    /// By cut: new bytes of each update.
    new: Vec<Vec<f64>>,
}

type Result<T> = std::result::Result<T, String>;

fn said<E: std::fmt::Display>(what: &str) -> impl FnOnce(E) -> String {
    move |error| format!("{what}: {error}")
}

/// Runs it, and prints a table.
///
/// # Errors
/// What can't be read, built or written.
pub(crate) fn run(options: &FleetOptions) -> Result<()> {
    let mut version = match &options.tree {
        Some(tree) => Version::of_directory(tree)?,
        None => Version::of_seed(options.files, options.seed),
    };
    let place = Place::new(&options.dir)?;
    let mut chains = chains(options, &place)?;
    println!("first version: {} files, {} MiB", version.files(), version.bytes() >> 20);
    for update in 0..=options.updates {
        if update > 0 {
            version.update(options.seed, update);
        }
        for chain in &mut chains {
            chain.next(&version, &place)?;
            if let (true, true) = (options.csv, update > 0) {
                chain.print_csv(update);
            }
        }
    }
    println!("last version: {} files, {} MiB", version.files(), version.bytes() >> 20);
    if !options.csv {
        print_table(&chains);
    }
    Ok(())
}

fn chains(options: &FleetOptions, place: &Place) -> Result<Vec<Chain>> {
    let mut chains = Vec::new();
    for name in &options.ways {
        let Some((_, way, label)) = WAYS.iter().copied().find(|(known, ..)| known == name) else {
            let known: Vec<&str> = WAYS.iter().map(|(name, ..)| *name).collect();
            return Err(format!("--ways {name}: not one of {}", known.join(", ")));
        };
        if way == Way::Mke2fs && Command::new("mke2fs").arg("-V").output().is_err() {
            println!("SKIPPED: mke2fs is not installed");
            continue;
        }
        let new = vec![Vec::new(); CUTS.len()];
        chains.push(Chain { way, label, image: place.path(name), had: Vec::new(), new });
    }
    Ok(chains)
}

impl Chain {
    /// Makes the image of the next version, and counts what is new of it.
    fn next(&mut self, version: &Version, place: &Place) -> Result<()> {
        let is_first = self.had.is_empty();
        match self.way {
            Way::Like if !is_first => self.build_like(version, place)?,
            Way::InPlace if !is_first => version.change(&self.image)?,
            Way::Mke2fs => self.mke2fs(version, place)?,
            way => {
                let source = version.source()?;
                let builder = Builder::new(&source).overwrite(true);
                let builder = if way == Way::Align { builder.align(ALIGN) } else { builder };
                builder.build(&self.image).map_err(said("building"))?;
            }
        }
        let file = File::open(&self.image).map_err(said("opening an image"))?;
        for (at, cut) in CUTS.iter().enumerate() {
            let found = Pieces::of(&file, *cut).map_err(said("reading an image"))?;
            match self.had.get_mut(at) {
                Some(had) => {
                    if let Some(list) = self.new.get_mut(at) {
                        list.push(crate::numbers::float(found.beyond(had)));
                    }
                    *had = found;
                }
                None => self.had.push(found),
            }
        }
        Ok(())
    }

    fn build_like(&self, version: &Version, place: &Place) -> Result<()> {
        let old = File::open(&self.image).and_then(FileDevice::new).map_err(said("opening an image"))?;
        let source = version.source()?;
        let next = place.path("next");
        let builder = Builder::new(&source).overwrite(true).like(Arc::new(old));
        builder.build(&next).map_err(said("building"))?;
        std::fs::rename(&next, &self.image).map_err(said("renaming an image"))
    }

    /// The same identifiers each time: they alone would make every inode another one.
    fn mke2fs(&self, version: &Version, place: &Place) -> Result<()> {
        let tree = place.path("tree");
        version.write(&tree)?;
        let size = format!("{}k", (version.bytes() * 11 / 10 + (24 << 20)) >> 10);
        let uuid = "11111111-2222-4333-8444-555555555555";
        let mut command = Command::new("mke2fs");
        command.env("SOURCE_DATE_EPOCH", "1700000000");
        command.args(["-q", "-F", "-t", "ext4", "-U", uuid, "-E", &format!("hash_seed={uuid}"), "-d"]);
        let done = command.arg(&tree).arg(&self.image).arg(size).output().map_err(said("mke2fs"))?;
        match done.status.success() {
            true => Ok(()),
            false => Err(format!("mke2fs: {}", String::from_utf8_lossy(&done.stderr))),
        }
    }

    fn print_csv(&self, update: u32) {
        for (cut, new) in CUTS.iter().zip(&self.new) {
            println!("{},{update},{cut},{}", self.label, new.last().copied().unwrap_or_default());
        }
    }
}

fn print_table(chains: &[Chain]) {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let mut lines = vec![words(&["way", "pieces", "median MiB", "most MiB", "all MiB"])];
    for chain in chains {
        for (cut, new) in CUTS.iter().zip(&chain.new) {
            let Some(summary) = Summary::of(new) else { continue };
            let mib = |bytes: f64| format!("{:.1}", bytes / f64::from(1 << 20));
            let all = summary.avg * crate::numbers::float(new.len() as u64);
            lines.push(vec![
                chain.label.to_owned(),
                cut.to_string(),
                mib(summary.median),
                mib(summary.max),
                mib(all),
            ]);
        }
    }
    print!("{}", align(&lines));
}

/// A directory of its own for images.
struct Place(PathBuf);

impl Place {
    fn new(above: &Path) -> Result<Self> {
        let path = above.join(format!("fleet-{}", std::process::id()));
        std::fs::create_dir(&path).map_err(said("creating a directory for images"))?;
        Ok(Place(path))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // What is left is only in the way.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
