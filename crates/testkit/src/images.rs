//! Golden images by the reference tools: mke2fs, genext2fs, debugfs and the kernel. Nothing is committed; a recipe makes its image into the cache and
//! checks the premise it was made for, so that a later version of a tool can't quietly make a test say nothing.

mod fill;
mod recipes;

#[cfg(test)]
mod tests;

use crate::mount::Mounted;
use crate::odd;
use crate::scratch::{Scratch, cache_dir};
use crate::{fsck, sparse, tool};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

pub use recipes::all;

/// Part of the cache's path; to be raised when a recipe or the trees change.
const VERSION: u32 = 4;

/// How one golden image is made.
#[derive(Debug)]
pub struct Recipe {
    /// Its name, and its file name in the cache without `.img`.
    pub name: &'static str,
    /// Size as mke2fs takes it.
    pub size: &'static str,
    /// Options for mke2fs, or for genext2fs.
    pub options: &'static [&'static str],
    /// Tool that puts files in.
    pub maker: Maker,
    /// Conditions that must be true of the image.
    pub premises: &'static [Premise],
}

/// The tool that puts the files in.
#[derive(Clone, Copy, Debug)]
pub enum Maker {
    /// `mke2fs -d` of the modest odd tree.
    Mke2fs,
    /// genext2fs, of the modest odd tree without attributes.
    Genext2fs,
    /// The kernel, through a loop mount with these options beside `loop`.
    Kernel(&'static str, fn(&Path)),
    /// The kernel, with a copy taken while mounted, after a sync: the journal is not clean.
    Crashed(fn(&Path)),
    /// debugfs, with these commands.
    Debugfs(&'static [&'static str]),
}

/// Something that must be true of an image.
#[derive(Clone, Copy, Debug)]
pub enum Premise {
    /// dumpe2fs names the feature.
    Feature(&'static str),
    /// dumpe2fs does not name the feature.
    NoFeature(&'static str),
    /// A line of `dumpe2fs -h` has this value.
    Field(&'static str, &'static str),
    /// debugfs's answer to the first contains the second.
    Answer(&'static str, &'static str),
    /// e2fsck has something to say, as is meant here.
    Unclean,
}

/// Makes the image of the recipe `name`, or finds it in the cache.
///
/// # Errors
/// Why this machine can't make it: a missing tool, no root, a kernel without the feature.
///
/// # Panics
/// When there is no such recipe, a tool fails, or the premise does not hold.
pub fn make(name: &str) -> Result<PathBuf, String> {
    // One at a time in a process: two tests that need the same image shall not both make it.
    static MAKING: Mutex<()> = Mutex::new(());
    let _making = MAKING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);

    let recipe =
        all().iter().find(|recipe| recipe.name == name).unwrap_or_else(|| panic!("no recipe {name}"));
    let directory = cache_dir().join(format!("images-v{VERSION}"));
    let image = directory.join(format!("{name}.img"));
    if image.exists() {
        return Ok(image);
    }
    for tool in ["mke2fs", "debugfs", "dumpe2fs", "e2fsck"] {
        if tool::find(tool).is_none() {
            return Err(format!("{tool} is not installed"));
        }
    }
    fs::create_dir_all(&directory).map_err(|e| format!("{}: {e}", directory.display()))?;
    let scratch = Scratch::new(name);
    let fresh = directory.join(format!("{name}.{}.new", std::process::id()));
    let made = recipe.make_into(&fresh, &scratch);
    if let Err(reason) = made {
        // It may never have been made.
        let _ = fs::remove_file(&fresh);
        return Err(reason);
    }
    let broken = recipe.broken_premises(&fresh);
    if !broken.is_empty() {
        let _ = fs::remove_file(&fresh);
        panic!("{name}: the image is not what it is for: {}", broken.join("; "));
    }
    fs::rename(&fresh, &image).unwrap_or_else(|e| panic!("{}: {e}", image.display()));
    Ok(image)
}

/// Makes the image of the recipe `name` for `test`, or says that it is skipped.
///
/// # Panics
/// As [`make`].
pub fn golden(test: &str, name: &str) -> Option<PathBuf> {
    make(name).map_err(|reason| tool::skip(test, &format!("image {name}: {reason}"))).ok()
}

impl Recipe {
    fn make_into(&self, image: &Path, scratch: &Scratch) -> Result<(), String> {
        match self.maker {
            Maker::Mke2fs => {
                let tree = tree(scratch, &odd::Options::modest());
                if self.wants("inline_data") {
                    // mke2fs 1.47 skips zeros, and leaves these as inline files of far more than fits, which no kernel opens.
                    for name in ["sparse/only-hole", "contents/zeros-not-holes"] {
                        fs::remove_file(tree.join(name)).map_err(|e| e.to_string())?;
                    }
                }
                self.mke2fs(image, Some(&tree));
                if self.wants("quota") {
                    // mke2fs writes its quota files before it copies the tree; e2fsck exits with 1 when it has corrected them.
                    let corrected = tool::command("e2fsck").args(["-fy"]).arg(image).output();
                    corrected.map_err(|e| format!("e2fsck: {e}"))?;
                }
            }
            Maker::Genext2fs => {
                if tool::find("genext2fs").is_none() {
                    return Err("genext2fs is not installed".into());
                }
                let tree = tree(scratch, &odd::Options { xattrs: false, ..odd::Options::modest() });
                tool::run(tool::command("genext2fs").args(self.options).arg("-d").arg(tree).arg(image));
            }
            Maker::Kernel(options, fill) => {
                self.mke2fs(image, None);
                let mounted = Mounted::kernel(image, &format!("loop,rw,{options}"))?;
                fill(mounted.path());
            }
            Maker::Crashed(fill) => {
                let live = scratch.join("live.img");
                self.mke2fs(&live, None);
                // A commit interval beyond this recipe: what the journal holds is what the sync below put there.
                let mounted = Mounted::kernel(&live, "loop,rw,commit=300")?;
                fill(mounted.path());
                tool::run(tool::command("sync").arg("-f").arg(mounted.path()));
                std::thread::sleep(Duration::from_millis(20));
                sparse::copy(&live, image).map_err(|e| format!("{}: {e}", image.display()))?;
            }
            Maker::Debugfs(commands) => {
                self.mke2fs(image, None);
                let script = scratch.join("script");
                let bytes = scratch.join("bytes");
                fs::write(&bytes, vec![b'd'; 20_000]).map_err(|e| e.to_string())?;
                let text = commands.join("\n").replace("@BYTES@", &bytes.to_string_lossy());
                fs::write(&script, text + "\n").map_err(|e| e.to_string())?;
                tool::run(tool::command("debugfs").arg("-w").arg("-f").arg(&script).arg(image));
            }
        }
        Ok(())
    }

    /// Returns true if the image is for this feature.
    fn wants(&self, feature: &str) -> bool {
        self.premises.iter().any(|premise| matches!(premise, Premise::Feature(name) if *name == feature))
    }

    fn mke2fs(&self, image: &Path, tree: Option<&Path>) {
        let mut command = tool::command("mke2fs");
        command.args(["-q", "-F", "-U", "6d6b6532-6673-4d00-8000-676f6c64656e"]).args(self.options);
        if let Some(tree) = tree {
            command.arg("-d").arg(tree);
        }
        tool::run(command.arg(image).arg(self.size));
    }

    fn broken_premises(&self, image: &Path) -> Vec<String> {
        let features = tool::dumpe2fs_field(image, "Filesystem features").unwrap_or_default();
        let has = |feature: &str| features.split(' ').any(|word| word == feature);
        let mut broken: Vec<String> = self
            .premises
            .iter()
            .filter(|premise| match premise {
                Premise::Feature(feature) => !has(feature),
                Premise::NoFeature(feature) => has(feature),
                Premise::Field(field, value) => tool::dumpe2fs_field(image, field).as_deref() != Some(value),
                Premise::Answer(request, part) => !tool::debugfs(image, request).contains(part),
                Premise::Unclean => fsck::complaints(image).is_empty(),
            })
            .map(|premise| format!("not so: {premise:?}"))
            .collect();
        if !self.premises.iter().any(|premise| matches!(premise, Premise::Unclean)) {
            let said = fsck::complaints(image);
            if !said.is_empty() {
                broken.push(said);
            }
        }
        broken
    }
}

fn tree(scratch: &Scratch, options: &odd::Options) -> PathBuf {
    let tree = scratch.join("tree");
    fs::create_dir(&tree).unwrap_or_else(|e| panic!("{}: {e}", tree.display()));
    odd::make(&tree, options);
    tree
}
