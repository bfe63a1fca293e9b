//! Words that comments, names and texts do not use, because they name no actor or no subject.

use syn::visit::{self, Visit};
use syn::{Attribute, Ident, ItemMod, Meta, Signature};

use crate::layering::files;

/// Words that may not be a part of a name in production code.
const IN_NAMES: [&str; 10] =
    ["told", "said", "ours", "nobody", "somebody", "anybody", "everybody", "whoever", "anew", "begun"];

/// Words that may not be a name by themselves in production code: `look_up` has a verb and its particle, `left_out` says where.
const WHOLE_NAMES: [&str; 4] = ["look", "left", "mark", "marks"];

/// Words that may not be the name of a function in production code.
const FUNCTIONS: [&str; 1] = ["of"];

/// Words that may not stand in a comment of production code.
const IN_COMMENTS: [&str; 2] = ["told", "anew"];

/// Words that may stand nowhere in production code, texts for users included.
const ANYWHERE: [&str; 5] = ["nobody", "somebody", "anybody", "everybody", "whoever"];

/// Beginnings of a doc comment that name no subject.
const QUESTIONS: [&str; 3] = ["What ", "Whose ", "Who "];

/// The words of a name: `held_up`, `HeldUp` and `HELD_UP` have two.
fn words(name: &str) -> Vec<String> {
    let mut out = vec![String::new()];
    let mut before = '_';
    for c in name.chars() {
        if c == '_' || (c.is_uppercase() && before.is_lowercase()) {
            out.push(String::new());
        }
        if c != '_' {
            out.last_mut().unwrap().extend(c.to_lowercase());
        }
        before = c;
    }
    out
}

#[derive(Default)]
struct Names(Vec<String>);

fn is_test(attribute: &Attribute) -> bool {
    matches!(&attribute.meta, Meta::List(list) if list.path.is_ident("cfg") && list.tokens.to_string() == "test")
}

impl Visit<'_> for Names {
    fn visit_item_mod(&mut self, module: &ItemMod) {
        if !module.attrs.iter().any(is_test) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_signature(&mut self, function: &Signature) {
        if FUNCTIONS.iter().any(|name| function.ident == name) {
            self.0.push(format!("the function {}", function.ident));
        }
        visit::visit_signature(self, function);
    }

    fn visit_ident(&mut self, name: &Ident) {
        let name = name.to_string();
        if WHOLE_NAMES.contains(&name.as_str()) || words(&name).iter().any(|word| IN_NAMES.contains(&word.as_str())) {
            self.0.push(format!("the name {name}"));
        }
    }
}

fn names(text: &str) -> Vec<String> {
    let mut names = Names::default();
    names.visit_file(&syn::parse_file(text).unwrap());
    names.0
}

/// The breaches of a line.
fn in_line(line: &str) -> Vec<String> {
    let lower = format!(" {} ", line.to_lowercase().replace(|c: char| !c.is_alphanumeric(), " "));
    let of = |words: &[&str]| -> Vec<String> {
        let there = words.iter().filter(|word| lower.contains(&format!(" {word} ")));
        there.map(|word| format!("the word \"{word}\"")).collect()
    };
    let mut found = of(&ANYWHERE);
    let Some(comment) = Some(line.trim_start()).filter(|line| line.starts_with("//")) else { return found };
    found.extend(of(&IN_COMMENTS));
    let question = comment.strip_prefix("/// ").and_then(|text| QUESTIONS.iter().find(|word| text.starts_with(**word)));
    found.extend(question.map(|word| format!("a comment that begins with \"{}\"", word.trim_end())));
    found
}

#[test]
fn comments_and_names_say_who_acts() {
    let mut found = vec![];
    for (path, text) in files() {
        let tests = path.starts_with("tests/") || path.contains("/tests/") || path.ends_with("tests.rs");
        if tests {
            continue;
        }
        found.extend(names(&text).into_iter().map(|what| format!("{path}: {what}")));
        let production = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        for (number, line) in production.lines().enumerate() {
            found.extend(in_line(line).into_iter().map(|what| format!("{path}:{}: {what}", number + 1)));
        }
    }
    assert!(found.is_empty(), "see CONTRIBUTING.md, Language:\n{}\n", found.join("\n"));
}

#[test]
fn each_breach_is_noticed() {
    assert_eq!(
        names("fn is_told(nobody: u8) { let x = \"told\"; } struct HadBegun; #[cfg(test)] mod t { fn anew() {} }")
            .len(),
        3
    );
    assert_eq!(names("impl A { fn of(&self, left: u8, left_out: u8) -> u8 { self.look_up(left) } }").len(), 3);
    assert_eq!(names("struct Said; trait B { fn of(of: u8); }").len(), 2);
    for (line, times) in [
        ("    // nobody reads it", 1),
        ("/// What is stored.", 1),
        ("/// Made anew by whoever comes.", 2),
        ("let x = \"nobody is told anew\";", 1),
        ("// The operator reports the failure.", 0),
    ] {
        assert_eq!(in_line(line).len(), times, "{line}: {:?}", in_line(line));
    }
}
