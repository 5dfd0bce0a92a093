//! The page's text and tables as HTML. Every name and text goes through [`escape`]: what a file of results says may be anything.

use super::claims;
use super::digest::{Case, Column, Digest, Figure, Table, founding};
use super::plots::{self, Plot};
use super::ratios;
use crate::better::Better;
use crate::experiment::Experiment;
use crate::summary::Summary;
use crate::table::{align, show};
use chart::escape;
use chart::page::color;
use serde_json::Value;
use std::fmt::Write;

/// Figures that a table shows before it is opened.
const SHOWN: usize = 6;
/// The most useful figures, if the documents published none.
const USEFUL: [&str; 22] = [
    "model_seconds",
    "seconds",
    "MB/s",
    "mb_per_second",
    "files/s",
    "seeks",
    "reads",
    "writes",
    "flushes",
    "extents/file",
    "extents_per_file",
    "mean run",
    ">=512 %",
    "free runs",
    "free_runs",
    "scanned/file",
    "calls/file",
    "requests",
    "layout",
    "near %",
    "groups/mkdir",
    "misses",
];
/// Most systems of a table that has its plots beside it.
const BESIDE: usize = 5;
/// Bytes of text of every figure, and cells, that all tables share.
const TEXT: usize = 1_000_000;
const CELLS: usize = 16_000;
/// Bytes of details that all verdicts share, and most of one.
const DETAILS: usize = 400_000;
const DETAIL: usize = 2_000;
/// Sessions that are listed, the last.
const SESSIONS: usize = 200;

/// Subjects of the founding documents, by number.
const FOUNDING: [&str; 5] = [
    "Extents, an allocator of many blocks at once and delayed allocation for ext3 (2004), beside plain ext3, reservation windows and XFS.",
    "The criteria of ext4's allocator named, counted and extended by one between exact and slow (2023), on a volume whose free space is in runs of 4 MiB.",
    "A placement rule for directories of FFS and soft updates (2001): unpacking and removing a ports tree.",
    "Allocation in clusters (2011): an aged file server in blocks of 4 KiB and clusters of 64 KiB to 1 MiB.",
    "Reservation windows for ext2 (2010): none, fixed, growing, and the old preallocation.",
];

/// The page's body, and what its figures draw: a figure's number is its place.
pub(crate) fn body(digest: &Digest) -> (String, Vec<Value>) {
    let mut page = Text { out: String::new(), drawn: Vec::new() };
    page.bar(digest);
    page.put("<div class=\"wrap\"><main>");
    page.top(digest);
    let aging = plots::aging(digest);
    let claims = claims::charts(digest);
    for (number, ((table, aging), claims)) in digest.tables.iter().zip(aging).zip(claims).enumerate() {
        page.section(digest, number, table, (aging, claims));
    }
    page.put("</main>");
    page.sessions(digest);
    page.put("</div>");
    (page.out, page.drawn)
}

struct Text {
    out: String,
    drawn: Vec<Value>,
}

impl Text {
    fn put(&mut self, markup: &str) {
        self.out.push_str(markup);
        self.out.push('\n');
    }

    /// The switches that stay in sight.
    fn bar(&mut self, digest: &Digest) {
        self.put("<div class=\"bar\"><div role=\"group\" aria-label=\"Systems shown\">");
        for (at, name) in digest.systems.iter().enumerate() {
            self.put(&format!(
                "<button type=\"button\" data-toggle=\"{at}\" aria-pressed=\"true\" style=\"{}\"><span class=\"key\"></span>{}</button>",
                color(at),
                escape(name)
            ));
        }
        self.put("<button type=\"button\" id=\"theme\" class=\"end\">Colours</button></div></div>");
    }

    fn top(&mut self, digest: &Digest) {
        let verdicts = || digest.tables.iter().flat_map(|table| &table.verdicts);
        let (all, held) = (verdicts().count(), verdicts().filter(|verdict| verdict.holds).count());
        self.put("<header class=\"top\"><h1>Where the blocks go</h1>");
        self.put(&ratios::counts(digest));
        let lead = match (all, all - held) {
            (0, _) => "No statement was judged yet; what was measured follows.".to_string(),
            (all, 0) => format!("All {all} statements that were judged hold."),
            (all, failed) => format!(
                "{held} of {all} statements that were judged hold; {failed} {}.",
                if failed == 1 { "does not" } else { "do not" }
            ),
        };
        self.put(&format!("<p class=\"lead\">{lead}</p>"));
        if digest.is_small {
            self.put(
                "<p><b>Sizes were small</b> (<code>--quick</code>): what was published was measured at full size, and a \
                 statement may fail for that alone.</p>",
            );
        }
        if held < all {
            self.put("<ul class=\"verdicts\">");
            for (number, table) in digest.tables.iter().enumerate() {
                for verdict in table.verdicts.iter().filter(|verdict| !verdict.holds) {
                    let (name, text) = (escape(&table.name), escape(&verdict.text));
                    self.put(&format!("<li class=\"no\"><a href=\"#t{number}\">{name}</a>: {text}</li>"));
                }
            }
            self.put("</ul>");
        }
        self.put("<nav aria-label=\"Tables\"><ol>");
        for (number, table) in digest.tables.iter().enumerate() {
            let held = table.verdicts.iter().filter(|verdict| verdict.holds).count();
            let count = if table.verdicts.is_empty() {
                "measured".into()
            } else {
                format!("{held} of {} hold", table.verdicts.len())
            };
            self.put(&format!(
                "<li><a href=\"#t{number}\">{}</a><span class=\"soft small\">{count}</span></li>",
                escape(&table.name)
            ));
        }
        self.put("</ol></nav><noscript><p>Tables and verdicts follow; the charts need JavaScript.</p></noscript></header>");
        self.skipped(&digest.skipped);
    }

    fn skipped(&mut self, skipped: &[crate::results::Skipped]) {
        if skipped.is_empty() {
            return;
        }
        self.put("<ul class=\"verdicts\">");
        for one in skipped {
            self.put(&format!(
                "<li class=\"skip\">{}: skipped, {}</li>",
                escape(&one.system),
                escape(&one.why)
            ));
        }
        self.put("</ul>");
    }

    fn section(
        &mut self,
        digest: &Digest,
        number: usize,
        table: &Table,
        (aging, claims): (Option<Plot>, String),
    ) {
        self.put(&format!("<section id=\"t{number}\"><h2>{}</h2>", escape(&table.name)));
        let document = founding(&table.name).and_then(|number| FOUNDING.get(usize::try_from(number).ok()?));
        let made = Experiment::named(&table.name).map(|made| made.about);
        for about in document.copied().into_iter().chain(made) {
            self.put(&format!("<p>{}</p>", escape(about)));
        }
        if !table.verdicts.is_empty() {
            self.put("<ul class=\"verdicts\">");
            let all: usize = digest.tables.iter().map(|table| table.verdicts.len()).sum();
            let most = (DETAILS / all.max(1)).min(DETAIL);
            for verdict in &table.verdicts {
                let (class, word) = if verdict.holds { ("yes", "holds") } else { ("no", "does not hold") };
                let (text, detail) = (escape(&verdict.text), detail(head(&verdict.detail, most)));
                self.put(&format!("<li class=\"{class}\">{text}: <b>{word}</b> {detail}</li>"));
            }
            self.put("</ul>");
        }
        self.put(&claims);
        self.put(&ratios::rows(table));
        self.skipped(&table.skipped);
        let figures = shown_figures(table);
        // A narrow table leaves room for its plots.
        self.put(if table.systems.len() <= BESIDE { "<div class=\"beside\"><div>" } else { "<div><div>" });
        self.table(digest, table, &figures);
        self.put("</div><div class=\"pair\">");
        plots::curves(digest, table).into_iter().for_each(|plot| self.figure(plot));
        plots::dots(table, &figures).into_iter().for_each(|plot| self.figure(plot));
        self.put("</div></div>");
        plots::criteria(table).into_iter().chain(aging).for_each(|plot| self.figure(plot));
        self.all_figures(digest, table);
        self.made(digest, table);
        self.put("</section>");
    }

    fn figure(&mut self, plot: Plot) {
        self.put(&format!(
            "<figure data-plot=\"{}\"><figcaption>{}</figcaption><div class=\"draw\"></div></figure>",
            self.drawn.len(),
            escape(&plot.caption)
        ));
        self.drawn.push(plot.data);
    }

    /// Means beside each other, a row for each figure of each case; below it what was published.
    fn table(&mut self, digest: &Digest, table: &Table, figures: &[String]) {
        if table.cases.is_empty() {
            return;
        }
        let several = table.cases.iter().flat_map(|case| &case.figures).flat_map(|figure| &figure.columns);
        let several = several.map(|column| column.values().len()).max().unwrap_or(0) > 1;
        self.put("<div class=\"scroll\"><table><thead><tr><th></th>");
        for system in &table.systems {
            let name = digest.systems.get(*system).map_or("", String::as_str);
            self.put(&format!("<th class=\"n\" data-s=\"{system}\" scope=\"col\"><span class=\"key\" style=\"{}\"></span>{}</th>", color(*system), escape(name)));
        }
        self.put("</tr></thead>");
        let ratios = table.has_peers(&digest.systems);
        let row = table.systems.len().max(1) * figures.len().max(1);
        let shown = (CELLS / digest.tables.len().max(1) / row).max(2);
        for case in table.cases.iter().take(shown) {
            self.case(table, case, figures, ratios);
        }
        self.put("</table></div>");
        let first =
            table.systems.first().and_then(|system| digest.systems.get(*system)).map_or("", String::as_str);
        let mut notes = Vec::new();
        let more = table.cases.len().saturating_sub(shown);
        if more > 0 {
            notes.push(format!("{more} cases more are in the file of results."));
        }
        if several {
            notes.push(format!("Means over several runs, \u{b1} their standard deviation. \u{25b2} \u{25bc}: above or below {first} at 95 % (Welch's t); \u{2248}: no difference found, the noise exceeds the effect."));
        }
        if ratios {
            notes.push(format!("\u{d7}: as a multiple of {first}."));
        }
        if !notes.is_empty() {
            self.put(&format!("<p class=\"soft small\">{}</p>", escape(&notes.join(" "))));
        }
    }

    fn case(&mut self, table: &Table, case: &Case, figures: &[String], ratios: bool) {
        let columns = table.systems.len() + 1;
        self.put(&format!(
            "<tbody><tr class=\"case\"><th colspan=\"{columns}\" scope=\"rowgroup\">{}</th></tr>",
            escape(&case.name)
        ));
        for figure in case.figures.iter().filter(|figure| figures.contains(&figure.name)) {
            let better = Better::of(&figure.name);
            let words =
                better.map(|better| format!(" <small>{}</small>", better.words())).unwrap_or_default();
            let best = better.and_then(|better| best(figure, better));
            let mut row =
                format!("<tr><th class=\"name\" scope=\"row\">{}{words}</th>", escape(&figure.name));
            let first = figure.columns.first().and_then(|column| Summary::of(&column.values()));
            for (at, (column, system)) in figure.columns.iter().zip(&table.systems).enumerate() {
                let is_best = best.is_some() && best == shown_mean(column);
                let class =
                    [(at == 0, "first"), (is_best, "best")].map(|(is, class)| if is { class } else { "" });
                let _ = write!(
                    row,
                    "<td data-s=\"{system}\" class=\"{}\">{}</td>",
                    class.join(" ").trim(),
                    cell(column, first.filter(|_| at > 0), ratios)
                );
            }
            self.put(&(row + "</tr>"));
            if figure.columns.iter().any(|column| column.published.is_some()) {
                self.published(table, figure);
            }
        }
        self.put("</tbody>");
    }

    fn published(&mut self, table: &Table, figure: &Figure) {
        let mut row = "<tr class=\"published\"><th class=\"name\" scope=\"row\">published</th>".to_string();
        for (column, system) in figure.columns.iter().zip(&table.systems) {
            let text = column.published.map(grouped).unwrap_or_default();
            let bounds = match column.bounds.map(|bound| bound.map(grouped)) {
                [Some(low), Some(high)] => format!("<br><small>{low} to {high}</small>"),
                _ => String::new(),
            };
            let _ = write!(row, "<td data-s=\"{system}\">{text}{bounds}</td>");
        }
        self.put(&(row + "</tr>"));
    }

    /// Every figure of the table.
    fn all_figures(&mut self, digest: &Digest, table: &Table) {
        let text = statistics(digest, table);
        if text.is_empty() {
            return;
        }
        let shown = head(&text, TEXT / digest.tables.len().max(1));
        let rest = text.get(shown.len()..).unwrap_or_default();
        let more = if rest.is_empty() {
            String::new()
        } else {
            format!("... and {} lines more, in the file of results\n", rest.lines().count())
        };
        self.put("<details><summary>Every figure: N, Min, Max, Median, Avg, Stddev, ratio</summary>");
        self.put(&format!("<pre tabindex=\"0\">{}{more}</pre></details>", escape(shown)));
    }

    /// How a table came about, and how to have it again.
    fn made(&mut self, digest: &Digest, table: &Table) {
        let seeds: Vec<String> = table.seeds.iter().map(u64::to_string).collect();
        let seeds = match seeds.len() {
            0 => String::new(),
            1 => format!(", seed {}", seeds.concat()),
            n if n <= 8 => format!(", seeds {}", seeds.join(", ")),
            n => format!(", {n} seeds"),
        };
        let mut commands: Vec<String> = Vec::new();
        for session in table.sessions.iter().filter_map(|at| digest.sessions.get(*at)) {
            let line = format!("<code>{}</code>", escape(&session.command));
            if !commands.contains(&line) {
                commands.push(line);
            }
        }
        self.put(&format!("<p class=\"soft small\">Made by {}{seeds}.</p>", commands.join(", ")));
    }

    fn sessions(&mut self, digest: &Digest) {
        self.put("<footer><h2>Runs</h2><div class=\"scroll\"><table><thead><tr><th>started</th><th>command</th><th>version</th><th>machine</th></tr></thead><tbody>");
        for session in digest.sessions.iter().skip(digest.sessions.len().saturating_sub(SESSIONS)) {
            let machine = &session.machine;
            self.put(&format!(
                "<tr><th>{}</th><th><code>{}</code></th><th>{}</th><th>{} processors {}, {} GiB, Linux {}</th></tr>",
                escape(&session.started),
                escape(&session.command),
                escape(&session.version),
                machine.cpus,
                escape(&machine.arch),
                machine.memory_mib.div_ceil(1_024),
                escape(&machine.kernel)
            ));
        }
        self.put("</tbody></table></div><p>Charts: drag to zoom in, Escape or a double click to see all; with the keyboard arrows, + and -. The buttons above take systems out and back in.</p></footer>");
    }
}

/// The reasons of a verdict: one line beside it, and more behind a summary.
fn detail(text: &str) -> String {
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    let line = format!("<span class=\"soft small\">{}</span>", escape(first));
    if rest.is_empty() {
        return line;
    }
    let count = rest.lines().count();
    let lines = if count == 1 { "line" } else { "lines" };
    let rest = escape(rest);
    format!("{line}<details><summary>{count} {lines}</summary><pre tabindex=\"0\">{rest}</pre></details>")
}

/// The mean of a column as it is printed: what is not seen makes no difference.
fn shown_mean(column: &Column) -> Option<String> {
    Summary::of(&column.values()).map(|own| grouped(own.avg))
}

/// The best mean of a figure, where two systems at least have one and they differ.
fn best(figure: &Figure, better: Better) -> Option<String> {
    let means = figure.columns.iter().filter_map(|column| Some(Summary::of(&column.values())?.avg));
    let best = means.max_by(|a, b| (better.sign() * a).total_cmp(&(better.sign() * b)))?;
    let shown = figure.columns.iter().filter_map(shown_mean);
    let best = grouped(best);
    shown.into_iter().any(|mean| mean != best).then_some(best)
}

/// The beginning of a text, of whole characters.
fn head(text: &str, bytes: usize) -> &str {
    let end = (0..=bytes.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text.get(..end).unwrap_or_default()
}

/// A number with its thousands apart.
fn grouped(value: f64) -> String {
    let text = show(value);
    let (whole, rest) = text.find('.').map_or((text.as_str(), ""), |at| text.split_at(at));
    let digits = whole.trim_start_matches('-');
    if digits.len() <= 4 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return text;
    }
    let mut out = whole.strip_suffix(digits).unwrap_or("").to_string();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out + rest
}

/// A mean, how it varies, and how it compares with the first system.
fn cell(column: &Column, first: Option<Summary>, ratios: bool) -> String {
    let Some(own) = Summary::of(&column.values()) else { return String::new() };
    let mut text = grouped(own.avg);
    if own.stddev > 0.0 {
        let _ = write!(text, " <small>\u{b1}{}</small>", grouped(own.stddev));
    }
    let Some(first) = first else { return text };
    if ratios && let Some((ratio, half)) = own.ratio(&first) {
        let interval = if half > 0.0 { format!("\u{b1}{half:.2}") } else { String::new() };
        let _ = write!(text, " <small>\u{d7}{ratio:.2}{interval}</small>");
    }
    if own.n > 1 && first.n > 1 {
        let mark = match own.differs(&first) {
            true if own.avg > first.avg => "\u{25b2}",
            true => "\u{25bc}",
            false if own.avg.to_bits() == first.avg.to_bits() => "",
            false => "\u{2248}",
        };
        let _ = write!(text, "<span class=\"mark\">{mark}</span>");
    }
    text
}

/// The figures that a table shows: those that were published, then those that it is printed with, then the most useful.
fn shown_figures(table: &Table) -> Vec<String> {
    let made = Experiment::named(&table.name);
    let mut names: Vec<(usize, &str)> = Vec::new();
    for figure in table.cases.iter().flat_map(|case| &case.figures) {
        let own = made.and_then(|made| made.figures.iter().position(|name| *name == figure.name));
        let rank = own
            .or_else(|| USEFUL.iter().position(|name| *name == figure.name).map(|at| at + 50))
            .map_or(100, |at| at + 1);
        let rank = if figure.columns.iter().any(|column| column.published.is_some()) { 0 } else { rank };
        match names.iter_mut().find(|(_, name)| *name == figure.name) {
            Some(known) => known.0 = known.0.min(rank),
            None => names.push((rank, &figure.name)),
        }
    }
    if names.len() > SHOWN + 2 {
        names.sort_by_key(|(rank, _)| *rank);
        let published = names.iter().filter(|(rank, _)| *rank == 0).count();
        names.truncate(SHOWN.max(published));
    }
    names.into_iter().map(|(_, name)| name.to_string()).collect()
}

/// Lines as of ministat for every figure of every case.
fn statistics(digest: &Digest, table: &Table) -> String {
    let head = ["case, figure", "system", "N", "Min", "Max", "Median", "Avg", "Stddev", "ratio", ""];
    let mut lines = vec![head.map(String::from).to_vec()];
    for case in &table.cases {
        for figure in &case.figures {
            let first = figure.columns.first().and_then(|column| Summary::of(&column.values()));
            for (at, (column, system)) in figure.columns.iter().zip(&table.systems).enumerate() {
                let Some(own) = Summary::of(&column.values()) else { continue };
                let ratio = first.and_then(|first| own.ratio(&first)).map(|(ratio, half)| {
                    if half > 0.0 { format!("{ratio:.3} +- {half:.3}") } else { format!("{ratio:.3}") }
                });
                let mark = match first.filter(|_| at > 0 && own.n > 1) {
                    Some(first) if own.differs(&first) => "differs (95 %)",
                    Some(first) if own.avg.to_bits() != first.avg.to_bits() => "no difference found",
                    _ => "",
                };
                let name = digest.systems.get(*system).cloned().unwrap_or_default();
                let numbers = [own.min, own.max, own.median, own.avg, own.stddev].map(show);
                let lead = [format!("{}, {}", case.name, figure.name), name, own.n.to_string()];
                lines.push(
                    lead.into_iter().chain(numbers).chain([ratio.unwrap_or_default(), mark.into()]).collect(),
                );
            }
        }
    }
    if lines.len() > 1 { align(&lines) } else { String::new() }
}
