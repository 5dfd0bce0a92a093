//! The modules of a crate as they are written, and what a path in one of them leads to.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use syn::{Attribute, Item, ItemImpl, UseTree, Visibility};

/// Uses that lead to each other are given up after this number of steps.
const STEPS: u32 = 32;

/// A module by its place in the list.
pub type Id = usize;

/// A name that a module gets from elsewhere.
pub struct Import {
    pub name: String,
    pub path: Vec<String>,
    pub is_public: bool,
    /// All that is public there.
    pub is_glob: bool,
}

/// One module.
#[derive(Default)]
pub struct Module {
    parent: Option<Id>,
    /// By name: the module, and whether it is public.
    pub children: BTreeMap<String, (Id, bool)>,
    pub imports: Vec<Import>,
    pub items: Vec<Item>,
}

/// Item that a path leads to.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Target {
    Module(Id),
    /// An item by its module and name.
    Item(Id, String),
    /// Of another crate.
    Foreign(Vec<String>),
}

/// All modules of a crate; the first is its root.
pub struct Source {
    pub modules: Vec<Module>,
}

/// The name of an item that can be named.
pub fn name_of(item: &Item) -> Option<(String, &Visibility)> {
    let (name, visibility) = match item {
        Item::Const(item) => (&item.ident, &item.vis),
        Item::Enum(item) => (&item.ident, &item.vis),
        Item::Fn(item) => (&item.sig.ident, &item.vis),
        Item::Static(item) => (&item.ident, &item.vis),
        Item::Struct(item) => (&item.ident, &item.vis),
        Item::Trait(item) => (&item.ident, &item.vis),
        Item::Type(item) => (&item.ident, &item.vis),
        _ => return None,
    };
    Some((name.to_string(), visibility))
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// Returns true if something is there in the library: not only for its tests or its documentation.
fn is_compiled(attributes: &[Attribute]) -> bool {
    !attributes.iter().any(|attribute| {
        let text = super::text::of(quote::ToTokens::to_token_stream(&attribute.meta));
        ["cfg(test)", "cfg(doc)", "cfg(doctest)", "cfg(all(test"].iter().any(|cfg| text.starts_with(cfg))
    })
}

fn imports(tree: &UseTree, above: &[String], is_public: bool, all: &mut Vec<Import>) {
    let with = |name: &syn::Ident| [above, &[name.to_string()]].concat();
    let mut push = |name: String, path: Vec<String>, is_glob| {
        all.push(Import { name, path, is_public, is_glob });
    };
    match tree {
        UseTree::Path(path) => imports(&path.tree, &with(&path.ident), is_public, all),
        UseTree::Name(name) if name.ident == "self" => {
            push(above.last().cloned().unwrap_or_default(), above.to_vec(), false);
        }
        UseTree::Name(name) => push(name.ident.to_string(), with(&name.ident), false),
        UseTree::Rename(rename) => push(rename.rename.to_string(), with(&rename.ident), false),
        UseTree::Glob(_) => push(String::new(), above.to_vec(), true),
        UseTree::Group(group) => group.items.iter().for_each(|tree| imports(tree, above, is_public, all)),
    }
}

impl Source {
    /// Reads a crate from its root on.
    ///
    /// # Errors
    /// A file that can't be read, or is no Rust.
    pub fn read(root: &Path) -> Result<Self, String> {
        let mut source = Source { modules: vec![Module::default()] };
        let directory = root.parent().unwrap_or(Path::new("")).to_owned();
        source.file(0, root, &directory)?;
        Ok(source)
    }

    /// Reads the module of a file, whose own modules lie in `directory`.
    fn file(&mut self, id: Id, path: &Path, directory: &Path) -> Result<(), String> {
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = fs::read_to_string(path).map_err(|error| failed(&error))?;
        let file = syn::parse_file(&text).map_err(|error| failed(&error))?;
        self.items(id, file.items, directory)
    }

    fn items(&mut self, id: Id, items: Vec<Item>, directory: &Path) -> Result<(), String> {
        for item in items {
            match item {
                Item::Mod(module) if is_compiled(&module.attrs) => {
                    let name = module.ident.to_string();
                    let child = self.modules.len();
                    self.modules.push(Module { parent: Some(id), ..Module::default() });
                    self.modules[id].children.insert(name.clone(), (child, is_public(&module.vis)));
                    let below = directory.join(&name);
                    match module.content {
                        Some((_, items)) => self.items(child, items, &below)?,
                        None => self.file(child, &file_of(directory, &name), &below)?,
                    }
                }
                Item::Use(item) if is_compiled(&item.attrs) => {
                    imports(&item.tree, &[], is_public(&item.vis), &mut self.modules[id].imports);
                }
                Item::Mod(_) | Item::Use(_) => {}
                item => self.modules[id].items.push(item),
            }
        }
        Ok(())
    }

    /// The item of a name in a module itself.
    pub fn item(&self, id: Id, name: &str) -> Option<&Item> {
        self.modules[id].items.iter().find(|item| name_of(item).is_some_and(|(found, _)| found == name))
    }

    /// Resolves a path that is written in a module.
    pub fn resolve(&self, id: Id, path: &[String]) -> Target {
        self.follow(id, path, STEPS).unwrap_or_else(|| Target::Foreign(path.to_vec()))
    }

    fn follow(&self, id: Id, path: &[String], steps: u32) -> Option<Target> {
        let steps = steps.checked_sub(1)?;
        let Some((first, rest)) = path.split_first() else { return Some(Target::Module(id)) };
        let module = &self.modules[id];
        match first.as_str() {
            "crate" => return self.follow(0, rest, steps),
            "self" => return self.follow(id, rest, steps),
            "super" => return self.follow(module.parent?, rest, steps),
            _ => {}
        }
        if let Some((child, _)) = module.children.get(first) {
            return self.follow(*child, rest, steps);
        }
        if rest.is_empty() && self.item(id, first).is_some() {
            return Some(Target::Item(id, first.clone()));
        }
        for import in &module.imports {
            if import.is_glob {
                let Some(Target::Module(other)) = self.follow(id, &import.path, steps) else { continue };
                if other == id {
                    continue;
                }
                if let Some(found @ (Target::Item(..) | Target::Module(_))) = self.follow(other, path, steps)
                {
                    return Some(found);
                }
            } else if import.name == *first {
                let whole = [&import.path[..], rest].concat();
                // The name of a crate may be that of what is taken from it.
                if import.path.first() == Some(first) {
                    return Some(Target::Foreign(whole));
                }
                return Some(self.follow(id, &whole, steps).unwrap_or(Target::Foreign(whole)));
            }
        }
        None
    }

    /// All implementations, with the modules they stand in.
    pub fn implementations(&self) -> impl Iterator<Item = (Id, &ItemImpl)> {
        self.modules.iter().enumerate().flat_map(|(id, module)| {
            module.items.iter().filter_map(move |item| match item {
                Item::Impl(item) if is_compiled(&item.attrs) => Some((id, item)),
                _ => None,
            })
        })
    }
}

/// The file of a module that is declared in another, whose modules lie in `directory`.
fn file_of(directory: &Path, name: &str) -> PathBuf {
    let plain = directory.join(format!("{name}.rs"));
    if plain.exists() { plain } else { directory.join(name).join("mod.rs") }
}
