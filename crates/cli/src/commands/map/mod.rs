//! `plat map`: one image as a picture: how full each part of it is, where files lie, how free space is cut up; or
//! where single files lie, of an image or of a mount; or whose single blocks are.
//!
//! Figures are those of `plat frag` and `plat freefrag`, from the same ways through files and bitmaps.

mod extents;
mod owners;
mod page;
mod survey;
mod terminal;

use platfs_host::Privacy;
use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde_json::{Map as Object, Value, json};

use super::cage;
use super::json as output;
use crate::commands::replaced::EXISTS;
use crate::console::{Console, Failure};
use crate::door::output::Output;
use crate::reading::OpenImage;
use crate::sandbox::Plan;
use crate::text::{Shown, put_bytes};
use chart::svg::map::{Map as Drawing, Strip};
use survey::{Kept, Survey};

/// Arguments of `plat map`.
#[derive(Args, Debug)]
pub struct Map {
    /// The image: a file, a block device, `disk.img@part1` or `disk.img@OFFSET`. Or a file of a mount by `plat mount`,
    /// of which the extents are shown.
    image: OsString,
    /// Files, and directories with all below them, that are looked for [default: /].
    paths: Vec<OsString>,
    /// The extents of each file, as `filefrag -e` shows them. If the first name is a file of a mount, so are all; else
    /// it is the image.
    #[arg(short, long, conflicts_with_all = ["output", "width", "color"])]
    extents: bool,
    /// Whose this block is: the file or the structure that it belongs to. May be given several times; `N-M` means all
    /// from N to M.
    #[arg(short, long, value_name = "N", value_delimiter = ',', value_parser = owners::parse)]
    #[arg(conflicts_with_all = ["extents", "paths", "output", "width", "color"])]
    block: Vec<owners::Blocks>,
    /// A file to write instead of the terminal: a page (.html), a drawing (.svg) or text (.txt).
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replaces a file that exists.
    #[arg(long, short, requires = "output")]
    force: bool,
    /// One JSON object.
    #[arg(long, conflicts_with = "output")]
    json: bool,
    /// Columns of the text [default: those of the terminal, or 100].
    #[arg(long, value_name = "COLUMNS", value_parser = clap::value_parser!(u16).range(40..=1000))]
    width: Option<u16>,
    /// When the text is coloured.
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    color: When,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum When {
    Auto,
    Always,
    Never,
}

/// Form that the output's name asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Page,
    Drawing,
    Text,
}

impl Form {
    fn of(path: &Path) -> Option<Form> {
        match path.extension()?.to_str()? {
            "html" => Some(Form::Page),
            "svg" => Some(Form::Drawing),
            "txt" => Some(Form::Text),
            _ => None,
        }
    }
}

impl Map {
    pub(super) fn cage(&self) -> Option<Plan> {
        // Files of mounts, of which the kernel is asked.
        if self.extents || extents::is_in_mount(&self.image) {
            return None;
        }
        cage::reading(&[&self.image], &[], self.output.as_deref())
    }

    pub(super) fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        if !self.block.is_empty() {
            return owners::show(&self.image, &self.block, self.json, console);
        }
        if self.extents || self.paths.is_empty() && self.output.is_none() && extents::is_in_mount(&self.image)
        {
            return extents::show(&self.image, &self.paths, self.json, console);
        }
        let form = self.output.as_deref().map(|path| self.form(path)).transpose()?;
        let image = OpenImage::open(&self.image, console)?;
        let survey = Survey::of(&image, &self.paths, console)?;
        if survey.overfull {
            console.warn(format!(
                "{}: files claim more blocks than there are; whose cells are was not followed",
                image.name
            ));
        }
        match self.output.as_deref().zip(form) {
            Some((path, form)) => whole(path, &self.file(form, &image, &survey)),
            None if self.json => Ok(output::print(console.out, object(&image, &survey))?),
            None => Ok(console.out.write_all(self.text(&image, &survey).as_bytes())?),
        }
    }

    fn form(&self, path: &Path) -> Result<Form, Failure> {
        let form = Form::of(path).ok_or_else(|| {
            Failure::Usage(format!(
                "{}: the name must end in .html, .svg or .txt, which says what to write",
                path.display()
            ))
        })?;
        if !self.force && platfs_host::path::is_taken(path) {
            return Err(Failure::exists(path.display(), EXISTS));
        }
        Ok(form)
    }

    fn file(&self, form: Form, image: &OpenImage, survey: &Survey) -> String {
        match form {
            Form::Page => page::html(image, survey),
            Form::Drawing => drawing(image, survey),
            Form::Text => terminal::text(
                image,
                survey,
                usize::from(self.width.unwrap_or(100)),
                self.color == When::Always,
            ),
        }
    }

    /// As wide as the terminal, in colours if there is one.
    fn text(&self, image: &OpenImage, survey: &Survey) -> String {
        let stdout = std::io::stdout();
        let is_terminal = stdout.is_terminal();
        let own = rustix::termios::tcgetwinsize(&stdout)
            .ok()
            .filter(|_| is_terminal)
            .map(|size| size.ws_col.max(40));
        let colored = match self.color {
            When::Auto => is_terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
            when => when == When::Always,
        };
        terminal::text(image, survey, usize::from(self.width.or(own).unwrap_or(100)), colored)
    }
}

/// Writes a file that is there whole, or not at all.
fn whole(path: &Path, text: &str) -> Result<(), Failure> {
    let failed = |error| Failure::about(path.display(), error);
    let output = Output::through(path, 0, Privacy::Ordinary).map_err(failed)?;
    output.file().and_then(|mut file| file.write_all(text.as_bytes())).map_err(failed)?;
    output.finish().map_err(failed)
}

/// The facts in a few words.
fn facts(image: &OpenImage, survey: &Survey) -> Vec<String> {
    let geometry = &image.volume.format().geometry;
    let free = survey.free.free_blocks();
    let used = geometry.blocks.saturating_sub(free);
    let bytes = |blocks: u64| crate::size::human(blocks.saturating_mul(geometry.block_size.bytes().into()));
    let totals = &survey.totals;
    vec![
        format!(
            "{} in {} groups, {} used ({:.1} %), blocks of {} bytes",
            bytes(geometry.blocks),
            geometry.groups,
            bytes(used),
            crate::free_runs::percent(used, geometry.blocks),
            geometry.block_size.bytes()
        ),
        format!(
            "{} files, {:.3} extents per file, {} fragmented ({:.1} %)",
            totals.files,
            totals.mean(),
            totals.fragmented,
            crate::free_runs::percent(totals.fragmented, totals.mapped)
        ),
        format!(
            "{} free in {} runs, the longest {}",
            bytes(free),
            survey.free.runs(),
            bytes(survey.free.longest_blocks())
        ),
    ]
}

/// How much of each cell is in use; none for what lies behind the end.
fn levels(survey: &Survey) -> impl Iterator<Item = Option<u8>> + '_ {
    survey.cells.iter().map(|cell| (cell.clusters > 0).then(|| chart::level(cell.used, cell.clusters)))
}

/// Describes the size of a cell.
fn cell_size(image: &OpenImage, survey: &Survey) -> String {
    let geometry = &image.volume.format().geometry;
    let clusters = survey.cells.first().map_or(0, |cell| cell.clusters);
    let blocks = clusters.saturating_mul(1 << geometry.cluster_log2);
    let bytes = crate::size::human(blocks.saturating_mul(geometry.block_size.bytes().into()));
    match survey.grid.groups_per_cell {
        1 => bytes,
        groups => format!("{groups} groups ({bytes})"),
    }
}

fn drawing(image: &OpenImage, survey: &Survey) -> String {
    let mut notes = vec![format!("A cell is {}.", cell_size(image, survey))];
    notes.extend(facts(image, survey));
    let strip = |file: &Kept| Strip { name: Shown(&file.path.0).to_string(), runs: file.runs.clone() };
    let strips: Vec<Strip> = shown(survey).map(strip).take(40).collect();
    let levels: Vec<u8> = levels(survey).flatten().collect();
    let title = format!("{}: what is in use, and where files lie", image.name);
    Drawing { title: &title, notes: &notes, levels: &levels, strips: &strips, total: survey::PLACES }.svg()
}

/// The files that are shown: those in the most pieces, then the largest.
fn shown(survey: &Survey) -> impl Iterator<Item = &Kept> {
    let fragmented = &survey.fragmented;
    let others = survey.largest.iter().filter(|file| !fragmented.iter().any(|other| other.path == file.path));
    fragmented.iter().chain(others)
}

fn object(image: &OpenImage, survey: &Survey) -> Object<String, Value> {
    let geometry = &image.volume.format().geometry;
    let mut object = Object::new();
    let mut put = |key: &str, value: Value| object.insert(key.to_owned(), value);
    put("block_size", geometry.block_size.bytes().into());
    put("blocks", geometry.blocks.into());
    put("groups", geometry.groups.into());
    put("groups_per_cell", survey.grid.groups_per_cell.into());
    put("cells_per_group", survey.grid.cells_per_group.into());
    let cells = survey.cells.iter().map(|cell| {
        let mut object = Object::new();
        let numbers = [
            ("clusters", cell.clusters),
            ("used", cell.used),
            ("metadata_blocks", cell.metadata),
            ("pieces", cell.pieces),
            ("inodes", cell.inodes),
            ("used_inodes", cell.used_inodes),
            ("directories", cell.directories),
        ];
        object.extend(numbers.map(|(key, value)| (key.to_owned(), value.into())));
        if let Some((_, path)) = &cell.owner {
            put_bytes(&mut object, "path", path);
        }
        Value::Object(object)
    });
    put("cells", cells.collect::<Vec<_>>().into());
    put("free_blocks", survey.free.free_blocks().into());
    put("free_extents", survey.free.runs().into());
    put("histogram", survey.free.histogram());
    put("files", survey.totals.files.into());
    put("extents", survey.totals.extents.into());
    put("fragmented_files", survey.totals.fragmented.into());
    put("files_by_extents", json!(survey.by_pieces));
    let files = shown(survey).map(|file| {
        let mut object = Object::new();
        put_bytes(&mut object, "path", &file.path.0);
        object.insert("directory".to_owned(), file.directory.into());
        object.insert("extents".to_owned(), file.pieces.into());
        object.insert("blocks".to_owned(), file.blocks.into());
        object.insert("places".to_owned(), json!(file.runs));
        Value::Object(object)
    });
    put("shown", files.collect::<Vec<_>>().into());
    object
}
