//! Interface of a crate as seen from outside, a line for each thing that a caller can write.

use std::collections::{BTreeMap, BTreeSet};

use quote::ToTokens;
use syn::{Attribute, Fields, ImplItem, Item, ItemImpl, Signature, TraitItem, Type, Visibility};

use super::source::{Id, Source, Target, name_of};
use super::text;

/// The lines of a crate, sorted.
pub fn of(source: &Source, package: &str) -> BTreeSet<String> {
    let mut reach = Reach { source, found: BTreeMap::new(), foreign: BTreeSet::new(), open: Vec::new() };
    reach.module(0, package);
    let mut lines = reach.foreign;
    for (target, paths) in &reach.found {
        let Target::Item(id, name) = target else { continue };
        let Some(item) = source.item(*id, name) else { continue };
        // What can be named in several ways is written once, by its shortest.
        let path = paths.iter().min_by_key(|path| (path.matches("::").count(), path.len()));
        let Some(path) = path else { continue };
        lines
            .extend(paths.iter().filter(|other| *other != path).map(|other| format!("use {other} = {path}")));
        write_item(path, item, &mut lines);
    }
    implementations(source, &reach.found, &mut lines);
    lines
}

/// Public items, by the paths that lead there.
struct Reach<'s> {
    source: &'s Source,
    found: BTreeMap<Target, BTreeSet<String>>,
    foreign: BTreeSet<String>,
    /// Modules on the way.
    open: Vec<Id>,
}

impl Reach<'_> {
    fn module(&mut self, id: Id, path: &str) {
        if self.open.contains(&id) {
            return;
        }
        self.open.push(id);
        let module = &self.source.modules[id];
        for (name, visibility) in module.items.iter().filter_map(name_of) {
            if matches!(visibility, Visibility::Public(_)) {
                self.target(Target::Item(id, name.clone()), &format!("{path}::{name}"));
            }
        }
        for (name, (child, is_public)) in &module.children {
            if *is_public {
                self.module(*child, &format!("{path}::{name}"));
            }
        }
        for import in module.imports.iter().filter(|import| import.is_public) {
            let target = self.source.resolve(id, &import.path);
            match target {
                Target::Module(other) if import.is_glob => self.module(other, path),
                target => self.target(target, &format!("{path}::{}", import.name)),
            }
        }
        self.open.pop();
    }

    fn target(&mut self, target: Target, path: &str) {
        match target {
            Target::Module(id) => self.module(id, path),
            Target::Foreign(of) => {
                self.foreign.insert(format!("use {path} = {}", of.join("::")));
            }
            item @ Target::Item(..) => {
                self.found.entry(item).or_default().insert(path.to_owned());
            }
        }
    }
}

/// Returns true if something is not for callers.
fn is_hidden(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| text::of(attribute.meta.to_token_stream()) == "doc(hidden)")
}

/// Promises of attributes: derived traits, that more fields or variants may come.
fn promises(attributes: &[Attribute]) -> String {
    let texts = attributes.iter().map(|attribute| text::of(attribute.meta.to_token_stream()));
    let kept = texts.filter(|text| text.starts_with("derive(") || text == "non_exhaustive");
    kept.map(|text| format!(" #[{text}]")).collect()
}

fn signature(signature: &Signature) -> String {
    text::of(signature.to_token_stream())
}

fn write_item(path: &str, item: &Item, lines: &mut BTreeSet<String>) {
    let mut add = |line: String| {
        lines.insert(line);
    };
    match item {
        Item::Const(item) => add(format!("const {path}: {}", text::of(item.ty.to_token_stream()))),
        Item::Static(item) => add(format!("static {path}: {}", text::of(item.ty.to_token_stream()))),
        Item::Type(item) => {
            let generics = text::of(item.generics.to_token_stream());
            add(format!("type {path}{generics} = {}", text::of(item.ty.to_token_stream())));
        }
        Item::Fn(item) => add(format!("fn {path}: {}", signature(&item.sig))),
        Item::Struct(item) => {
            let generics = text::of(item.generics.to_token_stream());
            add(format!("struct {path}{generics}{}", promises(&item.attrs)));
            fields(path, &item.fields, false, lines);
        }
        Item::Enum(item) => {
            let generics = text::of(item.generics.to_token_stream());
            add(format!("enum {path}{generics}{}", promises(&item.attrs)));
            for variant in item.variants.iter().filter(|variant| !is_hidden(&variant.attrs)) {
                let own = format!("{path}::{}", variant.ident);
                lines.insert(format!("variant {own}"));
                fields(&own, &variant.fields, true, lines);
            }
        }
        Item::Trait(item) => {
            let generics = text::of(item.generics.to_token_stream());
            let above = text::of(item.supertraits.to_token_stream());
            let above = if above.is_empty() { above } else { format!(": {above}") };
            add(format!("trait {path}{generics}{above}"));
            for of in &item.items {
                match of {
                    TraitItem::Fn(of) => {
                        let provided = if of.default.is_some() { " (provided)" } else { "" };
                        add(format!("{path}: {}{provided}", signature(&of.sig)));
                    }
                    other => add(format!("{path}: {}", text::of(other.to_token_stream()))),
                }
            }
        }
        _ => {}
    }
}

/// Fields that callers can name; those of variants are as public as the variant.
fn fields(path: &str, fields: &Fields, all: bool, lines: &mut BTreeSet<String>) {
    for (index, field) in fields.iter().enumerate() {
        if all || matches!(field.vis, Visibility::Public(_)) {
            let name = field.ident.as_ref().map_or_else(|| index.to_string(), ToString::to_string);
            lines.insert(format!("field {path}.{name}: {}", text::of(field.ty.to_token_stream())));
        }
    }
}

/// The item that a type names.
fn named(source: &Source, id: Id, of: &Type) -> Option<Target> {
    let Type::Path(path) = of else { return None };
    let names: Vec<String> = path.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
    Some(source.resolve(id, &names))
}

fn implementations(
    source: &Source,
    found: &BTreeMap<Target, BTreeSet<String>>,
    lines: &mut BTreeSet<String>,
) {
    let shortest = |target: &Target| {
        let paths = found.get(target)?;
        paths.iter().min_by_key(|path| (path.matches("::").count(), path.len()))
    };
    for (id, item) in source.implementations() {
        let Some(path) = named(source, id, &item.self_ty).and_then(|target| shortest(&target)) else {
            continue;
        };
        match &item.trait_ {
            None => inherent(path, item, lines),
            Some((_, of, _)) => {
                let names: Vec<String> =
                    of.segments.iter().map(|segment| segment.ident.to_string()).collect();
                let target = source.resolve(id, &names);
                if matches!(target, Target::Item(..)) && !found.contains_key(&target) {
                    continue;
                }
                let generics = text::of(item.generics.to_token_stream());
                let own = text::of(item.self_ty.to_token_stream());
                lines.insert(format!(
                    "impl {path}: impl{generics} {} for {own}",
                    text::of(of.to_token_stream())
                ));
            }
        }
    }
    // Those of foreign types, as of errors of the system.
    for (id, item) in source.implementations() {
        let of = named(source, id, &item.self_ty);
        if let (Some((_, of_trait, _)), Some(Target::Foreign(own))) = (&item.trait_, of) {
            let text = text::of(of_trait.to_token_stream());
            let is_ours = found.values().flatten().any(|path| {
                let last = path.rsplit("::").next().unwrap_or_default();
                text.contains(&format!("<{last}>"))
            });
            if is_ours {
                lines.insert(format!("impl {}: impl {text}", own.join("::")));
            }
        }
    }
}

fn inherent(path: &str, item: &ItemImpl, lines: &mut BTreeSet<String>) {
    for of in &item.items {
        match of {
            ImplItem::Fn(of) if matches!(of.vis, Visibility::Public(_)) && !is_hidden(&of.attrs) => {
                lines.insert(format!("{path}: {}", signature(&of.sig)));
            }
            ImplItem::Const(of) if matches!(of.vis, Visibility::Public(_)) => {
                lines.insert(format!("{path}: const {}: {}", of.ident, text::of(of.ty.to_token_stream())));
            }
            _ => {}
        }
    }
}
