//! A map as a page: layers to choose from, files to look for, names under the pointer.

use std::collections::HashMap;
use std::rc::Rc;

use serde_json::{Value, json};

use super::survey::{Cell, Kept, PLACES, Survey};
use super::{cell_size, facts, levels, shown};
use crate::reading::OpenImage;
use crate::size::human;
use crate::text::Shown;
use chart::escape;
use chart::page::Page;

/// Longest name that a cell or a file has on the page.
const LONGEST: usize = 240;

/// The page.
pub(super) fn html(image: &OpenImage, survey: &Survey) -> String {
    let title = format!("Map of {}", image.name);
    let data = data(image, survey).to_string();
    Page { title: &title, body: &body(image, survey), data: &data, script: include_str!("map.js") }.html()
}

fn body(image: &OpenImage, survey: &Survey) -> String {
    let facts: String =
        facts(image, survey).iter().map(|fact| format!("<li>{}</li>", escape(fact))).collect();
    let (name, cell) = (escape(&image.name), escape(&cell_size(image, survey)));
    let layers = ["in use", "metadata", "inodes", "pieces of files"];
    let layers: String = layers
        .iter()
        .enumerate()
        .map(|(at, layer)| {
            format!(
                "<button type=\"button\" data-layer=\"{at}\" aria-pressed=\"{}\">{layer}</button>",
                at == 0
            )
        })
        .collect();
    let noscript: String = shown(survey)
        .take(40)
        .map(|file| format!("<li>{}: {} extents</li>", escape(&name_of(&file.path.0)), file.pieces))
        .collect();
    format!(
        "<div class=\"bar\"><div><div class=\"choice\" role=\"group\" aria-label=\"What cells show\">{layers}</div>\
         <button type=\"button\" id=\"theme\" class=\"end\">Colours</button></div></div>\n\
         <div class=\"wrap\"><main><header class=\"top\"><h1>{name}</h1><ul class=\"facts\">{facts}</ul></header>\n\
         <figure id=\"cells\"><figcaption><b>The volume</b>, from its first block to its last. A cell is {cell}. \
         <span id=\"chosen\" class=\"soft\">Point at a cell to see whose it is; choose a file below to see where it lies.</span></figcaption>\
         <div id=\"legend\"></div><div class=\"draw\"></div></figure>\n\
         <div class=\"pair\"><figure id=\"free\"><figcaption><b>Free space by length of run</b></figcaption><div class=\"draw\"></div></figure>\
         <figure id=\"pieces\"><figcaption><b>Files by extents</b></figcaption><div class=\"draw\"></div></figure></div>\n\
         <figure id=\"files\"><figcaption><b>Where files lie</b>: those in the most extents and the largest, the volume from left to right. \
         <span class=\"controls\"><label>Find <input id=\"find\" type=\"search\" placeholder=\"part of a path\"></label>\
         <label>Order <select id=\"order\"><option>extents</option><option>size</option><option>path</option><option>place</option></select></label></span></figcaption>\
         <div class=\"draw\"></div></figure>\
         <noscript><p>The map needs JavaScript. Files in the most extents:</p><ol>{noscript}</ol></noscript></main></div>"
    )
}

/// A path as it can be read: the end of it, if it is long.
fn name_of(path: &[u8]) -> String {
    let path = Shown(path).to_string();
    let count = path.chars().count();
    if count <= LONGEST {
        path
    } else {
        format!("...{}", path.chars().skip(count - LONGEST).collect::<String>())
    }
}

fn data(image: &OpenImage, survey: &Survey) -> Value {
    let geometry = &image.volume.format().geometry;
    let there = |level: u8, cell: &Cell| (cell.clusters > 0).then_some(level);
    let layer = |level: &dyn Fn(&Cell) -> u8| {
        chart::letters(survey.cells.iter().map(|cell| there(level(cell), cell)))
    };
    let most = survey.cells.iter().map(|cell| cell.pieces).max().unwrap_or(0).max(1);
    let blocks = |cell: &Cell| cell.clusters << geometry.cluster_log2;
    let layers = [
        chart::letters(levels(survey)),
        layer(&|cell| chart::level(cell.metadata, blocks(cell).max(1))),
        layer(&|cell| chart::level(cell.used_inodes, cell.inodes.max(1))),
        layer(&|cell| chart::level(cell.pieces, most)),
    ];
    let (owners, names) = owners(&survey.cells);
    let file = |file: &Kept| {
        json!([
            name_of(&file.path.0),
            file.pieces,
            file.blocks,
            file.directory,
            file.runs.iter().flat_map(|(a, b)| [*a, *b]).collect::<Vec<_>>()
        ])
    };
    let bins = survey.free.bins().map(|(low, _, runs, blocks)| json!([low, runs, blocks]));
    let numbers = survey.cells.iter().map(|cell| {
        json!([
            cell.used,
            cell.clusters,
            cell.metadata,
            cell.used_inodes,
            cell.inodes,
            cell.directories,
            cell.pieces
        ])
    });
    json!({
        "layers": layers, "numbers": numbers.collect::<Vec<_>>(), "owners": owners, "names": names,
        "groupsPerCell": survey.grid.groups_per_cell, "cellsPerGroup": survey.grid.cells_per_group, "groups": geometry.groups,
        "places": PLACES, "block": geometry.block_size.bytes(), "blocks": geometry.blocks, "label": human(geometry.blocks.saturating_mul(geometry.block_size.bytes().into())),
        "bins": bins.collect::<Vec<_>>(), "pieces": survey.by_pieces, "files": shown(survey).map(file).collect::<Vec<_>>(),
    })
}

/// For each cell the place of its owner's name, each name once.
fn owners(cells: &[Cell]) -> (Vec<Option<usize>>, Vec<String>) {
    let mut known: HashMap<Rc<[u8]>, usize> = HashMap::new();
    let mut names = Vec::new();
    let owner = |cell: &Cell| {
        let (_, path) = cell.owner.as_ref()?;
        Some(*known.entry(Rc::clone(path)).or_insert_with(|| {
            names.push(name_of(path));
            names.len() - 1
        }))
    };
    (cells.iter().map(owner).collect(), names)
}
