//! `plat freefrag`: how free space is cut up, with the figures and bins of e2freefrag(8).
//!
//! On volumes with clusters, where e2freefrag reports nothing, runs are those of clusters.

use std::ffi::OsString;

use clap::Args;
use serde_json::{Map, Value};

use super::cage;
use super::json as output;
use crate::console::{Console, Failure};
use crate::free_runs::{Figures, figures, percent};
use crate::reading::OpenImage;
use crate::sandbox::Plan;

/// Arguments of `plat freefrag`.
#[derive(Args, Debug)]
pub struct FreeFrag {
    /// The image: a file, a block device, `disk.img@part1` or `disk.img@OFFSET`.
    image: OsString,
    /// One JSON object.
    #[arg(long)]
    json: bool,
}

/// The bounds of a bin in the largest unit that divides the lower, as e2freefrag shows them.
fn range(low: u64, high: u64) -> String {
    let step = low.trailing_zeros() / 10;
    let letter = ["", "K", "M", "G", "T", "P", "E"].get(step as usize).copied().unwrap_or_default();
    format!("{:>5}{letter}...{:>5}{letter}-", low >> (10 * step), high >> (10 * step))
}

impl FreeFrag {
    pub(super) fn cage(&self) -> Option<Plan> {
        cage::reading(&[&self.image], &[], None)
    }

    pub(super) fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        let image = OpenImage::open(&self.image, console)?;
        let figures = figures(&image.volume, |_, _| {}).map_err(|error| image.whole(&error))?;
        if self.json { print_json(console, &figures) } else { print(console, &figures, &image.name) }
    }
}

fn print(console: &mut Console<'_>, figures: &Figures, name: &str) -> Result<(), Failure> {
    let (geometry, out) = (figures.geometry(), &mut *console.out);
    let free = figures.free_blocks();
    writeln!(out, "Device: {name}\nBlocksize: {} bytes", geometry.block_size.bytes())?;
    writeln!(out, "Total blocks: {}", geometry.blocks)?;
    writeln!(out, "Free blocks: {free} ({:.1}%)\n", percent(free, geometry.blocks))?;
    writeln!(out, "Min. free extent: {} KB", figures.kilobytes(figures.shortest()))?;
    writeln!(out, "Max. free extent: {} KB", figures.kilobytes(figures.longest()))?;
    writeln!(out, "Avg. free extent: {} KB", figures.mean())?;
    writeln!(out, "Num. free extent: {}\n\nHISTOGRAM OF FREE EXTENT SIZES:", figures.runs())?;
    writeln!(out, "Extent Size Range :  Free extents   Free Blocks  Percent")?;
    for (low, high, runs, blocks) in figures.bins() {
        let share = percent(blocks, free);
        writeln!(out, "{}  :  {runs:>12}  {blocks:>12}  {share:>6.2}%", range(low, high))?;
    }
    Ok(())
}

fn print_json(console: &mut Console<'_>, figures: &Figures) -> Result<(), Failure> {
    let mut object = Map::new();
    let mut put = |key: &str, value: Value| object.insert(key.to_owned(), value);
    put("block_size", figures.geometry().block_size.bytes().into());
    put("blocks", figures.geometry().blocks.into());
    put("free_blocks", figures.free_blocks().into());
    put("free_extents", figures.runs().into());
    put("shortest_blocks", figures.blocks(figures.shortest()).into());
    put("longest_blocks", figures.longest_blocks().into());
    put("mean_kib", figures.mean().into());
    put("histogram", figures.histogram());
    Ok(output::print(console.out, object)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_shown_in_the_unit_of_their_start() {
        assert_eq!(range(1 << 10, 1 << 11), "    1K...    2K-");
        assert_eq!(range(1 << 19, 1 << 20), "  512K... 1024K-");
    }
}
