//! The imports between files of a crate, read from the syntax tree, without tests.
//!
//! An import of a re-exported name counts as an import of the parent. Paths inside macro calls are not seen.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};

/// Path of a module in its crate: `["store", "bucket"]`. The crate's root is empty.
pub type Module = Vec<String>;

/// The files of one crate, by module, with the modules that each imports.
pub struct Imports(pub BTreeMap<Module, BTreeSet<Module>>);

impl Imports {
    /// Reads all files below a crate's `src` folder.
    pub fn of(src: &Path) -> Self {
        let mut files = BTreeMap::new();
        collect(src, src, &mut files);
        let modules: BTreeSet<Module> = files.keys().cloned().collect();
        let imports = files.iter().map(|(module, path)| {
            let text = fs::read_to_string(path).unwrap();
            let tree = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let mut reader = Reader { module, modules: &modules, found: BTreeSet::new() };
            reader.visit_file(&tree);
            (module.clone(), reader.found)
        });
        Self(imports.collect())
    }

    /// The files that a file reaches by imports, itself included.
    fn reached_from(&self, module: &[String]) -> BTreeSet<Module> {
        let mut reached = BTreeSet::from([module.to_vec()]);
        let mut open = vec![module.to_vec()];
        while let Some(next) = open.pop() {
            let imported = self.0.get(&next).into_iter().flatten();
            open.extend(imported.filter(|module| reached.insert((*module).clone())).cloned().collect::<Vec<_>>());
        }
        reached
    }

    /// Groups of files that reach each other. Imports of a file's own ancestors do not count.
    pub fn circles(&self) -> Vec<BTreeSet<Module>> {
        let downward = Self(
            self.0
                .iter()
                .map(|(module, imported)| {
                    let others = imported.iter().filter(|other| !module.starts_with(other)).cloned().collect();
                    (module.clone(), others)
                })
                .collect(),
        );
        let reached: BTreeMap<&Module, BTreeSet<Module>> =
            downward.0.keys().map(|module| (module, downward.reached_from(module))).collect();
        let circle = |module: &Module| -> BTreeSet<Module> {
            reached[module].iter().filter(|other| reached[*other].contains(module)).cloned().collect()
        };
        let circles: BTreeSet<_> = downward.0.keys().map(circle).filter(|files| files.len() > 1).collect();
        circles.into_iter().collect()
    }
}

fn collect(src: &Path, folder: &Path, into: &mut BTreeMap<Module, PathBuf>) {
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if stem == "tests" || (folder == src && stem == "main") {
            continue;
        }
        if path.is_dir() {
            collect(src, &path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let below = path.strip_prefix(src).unwrap().with_extension("");
            let mut module: Module = below.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
            if stem == "mod" || module == ["lib"] {
                module.pop();
            }
            into.insert(module, path);
        }
    }
}

struct Reader<'a> {
    module: &'a Module,
    modules: &'a BTreeSet<Module>,
    found: BTreeSet<Module>,
}

impl Reader<'_> {
    fn add(&mut self, path: &[String]) {
        let mut names = path.iter();
        let mut place = match path.first().map(String::as_str) {
            Some("crate") => Module::new(),
            Some("self" | "super") => self.module.clone(),
            Some(name) if self.modules.contains(&[self.module.as_slice(), &[name.to_owned()]].concat()) => {
                self.found.insert([self.module.as_slice(), &[name.to_owned()]].concat());
                return;
            }
            _ => return,
        };
        if path[0] != "super" {
            names.next();
        }
        for name in names {
            match name.as_str() {
                "super" => drop(place.pop()),
                name => place.push(name.to_owned()),
            }
        }
        while !place.is_empty() && !self.modules.contains(&place) {
            place.pop();
        }
        if place != *self.module && !place.is_empty() {
            self.found.insert(place);
        }
    }

    fn add_tree(&mut self, tree: &syn::UseTree, before: &[String]) {
        let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        match tree {
            syn::UseTree::Path(path) => self.add_tree(&path.tree, &with(&path.ident)),
            syn::UseTree::Name(name) => self.add(&with(&name.ident)),
            syn::UseTree::Rename(name) => self.add(&with(&name.ident)),
            syn::UseTree::Glob(_) => self.add(before),
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.add_tree(tree, before)),
        }
    }
}

/// Whether the compiler leaves this item out of the shipped binary.
fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) if list.path.is_ident("cfg") => {
            list.parse_args::<syn::Path>().is_ok_and(|word| word.is_ident("test"))
        }
        _ => false,
    })
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_test(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !is_test(&item.attrs) {
            self.add_tree(&item.tree, &[]);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if names.len() > 1 {
            self.add(&names);
        }
        visit::visit_path(self, path);
    }
}
