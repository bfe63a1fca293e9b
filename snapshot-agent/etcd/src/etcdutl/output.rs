//! Classifies the error output of etcd's programs.
//!
//! This file decides which texts are about the data and which about this machine. An unknown text does not count against the
//! data: a snapshot that is called broken stays so, and `agent latest` then passes it over.

use holdfast_contract::ExitClass;

/// Maximum length of a line in a report.
const LINE: usize = 500;

/// The disk is full.
const FULL: [&str; 2] = ["no space left on device", "disk quota exceeded"];

/// Faults of this machine, in the kernel's words and in those of Go's runtime.
const MACHINE: [&str; 6] = [
    "input/output error",
    "read-only file system",
    "permission denied",
    "cannot allocate memory",
    "out of memory",
    "too many open files",
];

/// etcdutl's text for a copy whose hash differs from the hash at the file's end.
pub const COPIED: &str = "expected sha256 ";

/// Faults of the data, in etcdutl's words (etcd: etcdutl/snapshot/v3_snapshot.go), and in bbolt's when it opens a file (bbolt:
/// errors/errors.go).
const DATA: [&str; 4] = [COPIED, "snapshot missing hash", "invalid database", "checksum error"];

/// Faults of the data, in the panics of bbolt and etcd. Only the panic's own line counts: a stack trace has some of these words
/// in names of functions, whatever the cause was.
const PANICS: [&str; 6] =
    ["assertion failed", "page", "freelist", "high water mark", "bucket header", "invalid revision length"];

/// Prefixes of a line with the reason: a log comes before it, and often a trace or a usage after it.
const REASONS: [&str; 4] = ["Error: ", "panic: ", "fatal error: ", "flag provided but not defined"];

/// Prefixes of a log line that is more exact than those.
const LOGGED: [&str; 2] = ["{\"level\":\"panic\"", "{\"level\":\"fatal\""];

/// Classifies a failed program's output, and returns the line that decides.
pub fn classify_output(text: &str) -> (ExitClass, String) {
    let with = |words: &[&str]| text.lines().find(|line| words.iter().any(|word| line.contains(*word)));
    let panicked = || {
        let mut panics = text.lines().filter(|line| line.starts_with("panic: "));
        panics.find(|line| PANICS.iter().any(|word| line.contains(*word)))
    };
    let (class, line) = if let Some(line) = with(&FULL) {
        (ExitClass::Full, line)
    } else if let Some(line) = with(&MACHINE) {
        (ExitClass::Transient, line)
    } else if let Some(line) = with(&DATA).or_else(panicked) {
        (ExitClass::Corrupt, line)
    } else {
        (ExitClass::Transient, last(text))
    };
    (class, line.chars().take(LINE).collect())
}

/// Returns the program's own reason; otherwise its last line.
fn last(text: &str) -> &str {
    let begins = |with: &[&str]| text.lines().rfind(|line| with.iter().any(|begin| line.starts_with(*begin)));
    let something = || text.lines().rfind(|line| !line.trim().is_empty());
    begins(&LOGGED).or_else(|| begins(&REASONS)).or_else(something).unwrap_or("no output")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// bbolt's stack frames, which look the same for any reason.
    const TRACE: &str = "
goroutine 1 [running]:
go.etcd.io/bbolt/internal/freelist.(*shared).Read(0xc0001, 0x7f11)
\tgo.etcd.io/bbolt@v1.4.3/internal/freelist/shared.go:257 +0x1f
go.etcd.io/bbolt/internal/common.(*Page).FastCheck(...)
\tgo.etcd.io/bbolt@v1.4.3/internal/common/page.go:83
";

    #[test]
    fn only_what_is_about_the_data_is_held_against_it() {
        let logged = |error: &str| {
            format!(
                "{{\"level\":\"panic\",\"msg\":\"failed to open database\",\"path\":\"db\",\"error\":\"{error}\",\
                 \"stacktrace\":\"go.etcd.io/bbolt/internal/freelist\"}}\npanic: failed to open database\n{TRACE}"
            )
        };
        let panicked = |why: &str| format!("panic: {why}\n{TRACE}");
        for (text, class, says) in [
            ("Error: expected sha256 [1 2], got [2 1]".to_owned(), ExitClass::Corrupt, "expected sha256"),
            ("Error: snapshot missing hash but --skip-hash-check=false".to_owned(), ExitClass::Corrupt, "missing hash"),
            (logged("invalid database"), ExitClass::Corrupt, "invalid database"),
            (logged("checksum error"), ExitClass::Corrupt, "checksum error"),
            (
                panicked("assertion failed: Page expected to be: 7, but self identifies as 0"),
                ExitClass::Corrupt,
                "expected",
            ),
            (panicked("invalid freelist page: 3, page type is leaf"), ExitClass::Corrupt, "invalid freelist page"),
            (panicked("pgid (9) above high water mark (4)"), ExitClass::Corrupt, "high water mark"),
            ("Error: write db: no space left on device".to_owned(), ExitClass::Full, "no space"),
            ("Error: write db: disk quota exceeded".to_owned(), ExitClass::Full, "quota"),
            (logged("truncate db: no space left on device"), ExitClass::Full, "no space"),
            (logged("mmap allocate error: cannot allocate memory"), ExitClass::Transient, "cannot allocate memory"),
            ("Error: read snapshot.db: input/output error".to_owned(), ExitClass::Transient, "input/output"),
            ("Error: open db: read-only file system".to_owned(), ExitClass::Transient, "read-only"),
            ("Error: open db: permission denied".to_owned(), ExitClass::Transient, "permission denied"),
            ("Error: open db: too many open files".to_owned(), ExitClass::Transient, "too many"),
            (format!("fatal error: runtime: out of memory\n{TRACE}"), ExitClass::Transient, "out of memory"),
            // A memory-mapped file that cannot be read.
            (
                format!("unexpected fault address 0x7f\nfatal error: fault\n{TRACE}"),
                ExitClass::Transient,
                "error: fault",
            ),
            (logged("timeout"), ExitClass::Transient, "\"timeout\""),
            (panicked("runtime error: index out of range [3]"), ExitClass::Transient, "index out of range"),
            ("its log\nError: it had a bad day\n\nUsage:\n  etcdutl\n".to_owned(), ExitClass::Transient, "a bad day"),
            ("flag provided but not defined: -x\nUsage:\n".to_owned(), ExitClass::Transient, "-x"),
            ("one\ntwo\n\n".to_owned(), ExitClass::Transient, "two"),
            (String::new(), ExitClass::Transient, "no output"),
        ] {
            let (found, line) = classify_output(&text);
            assert_eq!(found, class, "{text}");
            assert!(line.contains(says) && line.lines().count() == 1, "{says:?} is not said by {line:?}");
        }
    }
}
