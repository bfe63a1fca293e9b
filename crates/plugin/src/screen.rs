//! Text for a terminal: columns that fit its width, wrapped sentences, and colours that a pipe does not get.
//!
//! PURE except for [`Output::screen`]. Decides no content.

use std::io::{self, IsTerminal as _};

use clap::{Args, ValueEnum};
use holdfast_io::table::printable;
use serde::Serialize;

/// Least width that every screen fits.
pub const NARROWEST: usize = 80;
/// Width of a pipe or a file.
const PIPE: usize = 120;
/// Most columns that a text uses, however wide the terminal is.
const WIDEST: usize = 160;

/// Most lines of one message; the object has the whole.
pub const MESSAGE_LINES: usize = 6;

/// Form of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
}

/// Flags about the form of the result.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// Form of the result. Fields keep their names and meanings. Default: text for people.
    #[arg(short, long, value_enum, value_name = "FORMAT", help_heading = "Output")]
    pub output: Option<Format>,
    /// Print no colours. A pipe and a file get none in any case.
    #[arg(long, help_heading = "Output")]
    pub no_color: bool,
}

impl Output {
    /// Looks at standard output.
    pub fn screen(&self) -> Screen {
        let is_terminal = io::stdout().is_terminal();
        // no-color.org; a terminal without cursor control shows the codes as text.
        let refuses = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        let width = terminal_size::terminal_size().map_or(PIPE, |(width, _)| usize::from(width.0));
        Screen {
            width: if is_terminal { width.clamp(NARROWEST, WIDEST) } else { PIPE },
            coloured: is_terminal && !refuses && !self.no_color,
            is_terminal,
        }
    }

    /// Returns the value as JSON or YAML. `None`: the person wants text.
    pub fn encoded(&self, value: &impl Serialize) -> anyhow::Result<Option<String>> {
        Ok(match self.output {
            None => None,
            Some(Format::Json) => Some(serde_json::to_string_pretty(value)? + "\n"),
            // By way of JSON: YAML code for each type is slow to compile.
            Some(Format::Yaml) => Some(serde_saphyr::to_string(&serde_json::to_value(value)?)?),
        })
    }
}

/// The place where text is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Screen {
    /// Columns.
    pub width: usize,
    /// Whether text has colours.
    pub coloured: bool,
    /// Whether a person looks at it while it changes.
    pub is_terminal: bool,
}

/// Meaning of a piece of text, shown as a colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    /// Nothing special.
    #[default]
    Plain,
    /// A name or a heading.
    Strong,
    /// Beside the point.
    Faint,
    /// As wanted.
    Good,
    /// Changes now.
    Moving,
    /// Needs a look.
    Warning,
    /// Needs a person.
    Bad,
}

impl Screen {
    /// Returns text in the colour of its meaning.
    pub fn paint(self, tone: Tone, text: &str) -> String {
        let code = match tone {
            Tone::Plain => "",
            Tone::Strong => "1",
            Tone::Faint => "2",
            Tone::Good => "32",
            Tone::Moving => "36",
            Tone::Warning => "33",
            Tone::Bad => "1;31",
        };
        if !self.coloured || code.is_empty() || text.is_empty() {
            return text.to_owned();
        }
        format!("\x1b[{code}m{text}\x1b[0m")
    }

    /// Returns a heading of a block.
    pub fn heading(self, text: &str) -> String {
        format!("{}\n", self.paint(Tone::Strong, text))
    }
}

/// A piece of text with its meaning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    text: String,
    tone: Tone,
}

/// Returns a piece of text with a meaning.
pub fn cell(tone: Tone, text: impl AsRef<str>) -> Cell {
    Cell { text: plain(text.as_ref()), tone }
}

/// Returns text on one line that cannot move the cursor.
pub fn plain(text: &str) -> String {
    printable(text.split_whitespace().collect::<Vec<_>>().join(" ").as_bytes())
}

impl<T: AsRef<str>> From<T> for Cell {
    fn from(text: T) -> Self {
        cell(Tone::Plain, text)
    }
}

/// Rows below one line of titles.
#[derive(Clone, Debug)]
pub struct Table {
    /// Title of each column, and the least width to which the column may shrink. 0: the column never shrinks.
    columns: Vec<(&'static str, usize)>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// Makes a table without rows.
    pub fn new(columns: &[(&'static str, usize)]) -> Self {
        Self { columns: columns.to_vec(), rows: vec![] }
    }

    /// Adds a row.
    pub fn push(&mut self, row: Vec<Cell>) {
        self.rows.push(row);
    }

    /// Returns the lines, indented, and no wider than the screen where the columns can shrink so far. A column without a text
    /// is left out.
    pub fn lines(&self, screen: Screen, indent: usize) -> String {
        let used =
            |column: usize| self.rows.iter().any(|row| row.get(column).is_some_and(|cell| !cell.text.is_empty()));
        let columns: Vec<usize> = (0..self.columns.len()).filter(|column| used(*column)).collect();
        let longest = |column: &usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(*column)).map(|cell| cell.text.chars().count());
            cells.chain([self.columns[*column].0.chars().count()]).max().unwrap_or(0)
        };
        let mut widths: Vec<usize> = columns.iter().map(longest).collect();
        let gaps = 2 * columns.len().saturating_sub(1) + indent;
        while widths.iter().sum::<usize>() + gaps > screen.width {
            let shrinks = |at: &usize| self.columns[columns[*at]].1 > 0 && widths[*at] > self.columns[columns[*at]].1;
            let Some(widest) = (0..widths.len()).filter(shrinks).max_by_key(|at| widths[*at]) else { break };
            widths[widest] -= 1;
        }
        let titles = columns.iter().map(|column| cell(Tone::Faint, self.columns[*column].0)).collect();
        let mut out = String::new();
        let empty = Cell::default();
        let has_titles = columns.iter().any(|column| !self.columns[*column].0.is_empty());
        let rows = self.rows.iter().map(|row| columns.iter().map(|c| row.get(*c).unwrap_or(&empty).clone()).collect());
        for row in has_titles.then_some(titles).into_iter().chain(rows) {
            let row: Vec<Cell> = row;
            let mut line = " ".repeat(indent);
            let mut space = 0;
            for (Cell { text, tone }, width) in row.iter().zip(&widths) {
                let text = shorten(text, *width);
                line.push_str(&" ".repeat(space));
                line.push_str(&screen.paint(*tone, &text));
                space = width - text.chars().count() + 2;
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }
}

/// Returns text of at most this many characters: the middle goes, because names differ at their ends.
pub fn shorten(text: &str, most: usize) -> String {
    let count = text.chars().count();
    if count <= most {
        return text.to_owned();
    }
    let tail = most.saturating_sub(1) * 2 / 3;
    let head = most.saturating_sub(1 + tail);
    let start: String = text.chars().take(head).collect();
    let end: String = text.chars().skip(count - tail).collect();
    format!("{start}…{end}")
}

/// Returns the lines of a sentence. A word that is longer than a line has a line of its own.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = vec![];
    for word in plain(text).split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Returns a sentence in lines below each other, cut where it has too many.
pub fn message(text: &str, indent: usize, most: usize, screen: Screen) -> String {
    let lines = wrap(text, screen.width - indent - 2);
    let mut out = String::new();
    for (at, line) in lines.iter().take(most).enumerate() {
        let more = if at + 1 == most && lines.len() > most { " …" } else { "" };
        out.push_str(&format!("{}{line}{more}\n", " ".repeat(indent)));
    }
    out
}

/// Returns the pieces in as few lines as the width permits, with this text between two pieces.
pub fn flow(pieces: &[String], between: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = vec![];
    for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
        match lines.last_mut() {
            Some(line) if line.chars().count() + between.chars().count() + piece.chars().count() <= width => {
                line.push_str(between);
                line.push_str(piece);
            }
            _ => lines.push(piece.clone()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const NARROW: Screen = Screen { width: 30, coloured: false, is_terminal: false };

    #[test]
    fn columns_shrink_in_the_middle_of_names_and_empty_columns_go() {
        let mut table = Table::new(&[("NAME", 8), ("EMPTY", 0), ("NODE", 6), ("STATE", 0)]);
        table.push(vec!["alpha-very-long-name-7kq2x".into(), "".into(), "node-a".into(), "Serving".into()]);
        table.push(vec!["b".into(), "".into(), "n".into(), "Leaving".into()]);
        let text = table.lines(NARROW, 2);
        let wanted = "  NAME         NODE    STATE\n  alph…-7kq2x  node-a  Serving\n  b            n       Leaving\n";
        assert_eq!(text, wanted);
        assert!(text.lines().all(|line| line.chars().count() <= 30), "{text}");
    }

    #[test]
    fn a_colour_takes_no_column() {
        let mut table = Table::new(&[("A", 0), ("B", 0)]);
        table.push(vec![cell(Tone::Good, "yes"), "x".into()]);
        let coloured = table.lines(Screen { coloured: true, ..NARROW }, 0);
        assert!(coloured.contains("\x1b[32myes\x1b[0m  x"), "{coloured:?}");
        assert!(!table.lines(NARROW, 0).contains('\x1b'));
    }

    #[test]
    fn sentences_wrap_and_control_characters_show() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("a\n b\u{1b}[2J", 20), ["a b\\x1b[2J"]);
        assert_eq!(flow(&["ab".into(), String::new(), "cd".into(), "ef".into()], " · ", 7), ["ab · cd", "ef"]);
        assert_eq!((shorten("abcdef", 6), shorten("abcdefgh", 5)), ("abcdef".to_owned(), "ab…gh".to_owned()));
    }
}
