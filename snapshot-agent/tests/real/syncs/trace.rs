//! File system calls of a run in their order, from strace(1): writes, syncs and renames below one folder, and so the possible
//! losses in a power cut at any moment.
//!
//! Stricter than ext4: the contents of a file are durable after a sync of the file that follows the write, and a name after a
//! sync of its folder that follows the rename (fsync(2)). Nothing else makes anything durable, and no other order holds.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// Traced calls: those that change or sync a file. A call with `?` does not exist on every architecture.
pub(crate) const CALLS: &str = "trace=?open,openat,openat2,?creat,write,writev,pwrite64,pwritev,pwritev2,ftruncate,fallocate,\
                                copy_file_range,sendfile,splice,fsync,fdatasync,fadvise64,pread64,?rename,renameat,renameat2,?link,linkat,\
                                ?symlink,symlinkat,?unlink,unlinkat,?rmdir,?mkdir,mkdirat,mmap";

/// A file or a folder.
#[derive(Clone, Copy, Debug, Default)]
struct Node {
    /// When the node got its present name.
    named: usize,
    /// When the last change of a file's contents ended.
    changed: usize,
    /// When the last completed sync started.
    synced: usize,
}

/// A rename.
#[derive(Debug)]
pub(crate) struct Renamed {
    pub(crate) from: PathBuf,
    pub(crate) to: PathBuf,
    /// The nodes below the folder at that moment, by their earlier names.
    nodes: BTreeMap<PathBuf, Node>,
}

/// History of a folder.
pub(crate) struct Trace {
    root: PathBuf,
    nodes: BTreeMap<PathBuf, Node>,
    backs: BTreeMap<PathBuf, Back>,
    pub(crate) renames: Vec<Renamed>,
}

/// Progress of a file that is written from start to end and then read back from the disk.
#[derive(Debug, Default)]
struct Back {
    /// Ends of the writes, with their moments.
    written: Vec<(usize, u64)>,
    /// Bytes that are durable.
    durable: u64,
    /// Durable bytes that were dropped from memory since.
    forgotten: u64,
    /// Dropped bytes that were read since.
    read: u64,
}

impl Back {
    /// Applies one completed call.
    fn apply(&mut self, since: usize, at: usize, name: &str, arguments: &str, result: &str) {
        let number =
            |text: &str| text.trim_end_matches(')').parse::<u64>().unwrap_or_else(|error| panic!("{text}: {error}"));
        let mut last = arguments.rsplit(", ").map(str::trim);
        match name {
            "write" => self.wrote(at, number(result)),
            "fsync" | "fdatasync" => self.synced(since),
            "fadvise64" if last.next().is_some_and(|advice| advice.starts_with("POSIX_FADV_DONTNEED")) => {
                let (length, from) = (last.next().unwrap(), last.next().unwrap());
                self.forgot(number(from), number(length));
            }
            "pread64" => self.read(number(last.next().unwrap()), number(result)),
            _ => {}
        }
    }

    fn wrote(&mut self, at: usize, bytes: u64) {
        let before = self.written.last().map_or(0, |(_, total)| *total);
        self.written.push((at, before + bytes));
    }

    fn synced(&mut self, since: usize) {
        let before = self.written.iter().rev().find(|(at, _)| *at < since);
        self.durable = before.map_or(0, |(_, total)| *total);
    }

    /// Notes dropped bytes. Bytes that are not durable stay in memory.
    fn forgot(&mut self, from: u64, length: u64) {
        let end = if length == 0 { self.durable } else { from + length };
        if from <= self.read && end <= self.durable {
            self.forgotten = end;
        }
    }

    fn read(&mut self, from: u64, bytes: u64) {
        if from == self.read && from + bytes <= self.forgotten {
            self.read += bytes;
        }
    }
}

impl Trace {
    /// Reads the trace of the calls below this folder, which was empty.
    pub(crate) fn read(root: &Path, text: &str) -> Self {
        let mut trace = Self { root: root.to_owned(), nodes: BTreeMap::new(), backs: BTreeMap::new(), renames: vec![] };
        trace.nodes.insert(root.to_owned(), Node::default());
        let mut unfinished = HashMap::new();
        for (at, line) in text.lines().enumerate().map(|(at, line)| (at + 1, line)) {
            let (pid, call) = line.split_once(' ').unwrap_or_else(|| panic!("no line of strace's: {line}"));
            let call = call.trim_start();
            if let Some(begun) = call.strip_suffix(" <unfinished ...>") {
                // From here on the call may have written.
                trace.apply(at, at, &format!("{begun}) = 0"), true);
                unfinished.insert(pid, (at, begun));
            } else if let Some(rest) = call.strip_prefix("<... ") {
                let (_, rest) = rest.split_once(" resumed>").unwrap();
                let (since, begun) = unfinished.remove(pid).unwrap();
                trace.apply(since, at, &format!("{begun}{rest}"), false);
            } else {
                trace.apply(at, at, call, false);
            }
        }
        trace
    }

    /// Applies one call. `only_begun`: its result is not known yet.
    fn apply(&mut self, since: usize, at: usize, text: &str, only_begun: bool) {
        let Some((name, arguments)) = text.split_once('(') else { return };
        // Signals and ends of processes.
        if !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            return;
        }
        let Some((arguments, result)) = arguments.rsplit_once(" = ") else { return };
        if result.starts_with('-') || result.starts_with('?') {
            return;
        }
        if !only_begun && let Some(path) = arguments.contains('<').then(|| opened(arguments, 0)) {
            self.backs.entry(path).or_default().apply(since, at, name, arguments, result);
        }
        match name {
            "fadvise64" | "pread64" => {}
            "write" | "writev" | "pwrite64" | "pwritev" | "pwritev2" | "ftruncate" | "fallocate" => {
                self.changed(at, &opened(arguments, 0));
            }
            "copy_file_range" | "splice" => self.changed(at, &opened(arguments, 1)),
            "sendfile" => self.changed(at, &opened(arguments, 0)),
            "mmap" => {
                let path = opened(arguments, 0);
                let shared = arguments.contains("MAP_SHARED") && arguments.contains("PROT_WRITE");
                assert!(
                    !shared || !path.starts_with(&self.root),
                    "written through memory, which no trace shows: {text}"
                );
            }
            _ if only_begun => {}
            "fsync" | "fdatasync" => {
                if let Some(node) = self.nodes.get_mut(&opened(arguments, 0)) {
                    node.synced = node.synced.max(since);
                }
            }
            "open" | "openat" | "openat2" | "creat" => {
                let path = opened(result, 0);
                if arguments.contains("O_CREAT") && !self.nodes.contains_key(&path) {
                    self.appears(at, path);
                } else if arguments.contains("O_TRUNC") {
                    self.changed(at, &path);
                }
            }
            "mkdir" | "mkdirat" => self.appears(at, named(arguments).remove(0)),
            "rename" | "renameat" | "renameat2" => {
                let paths = named(arguments);
                let [from, to] = paths.as_slice() else { panic!("a rename names two paths: {text}") };
                self.renamed(at, from, to);
            }
            "unlink" | "unlinkat" | "rmdir" => {
                let path = named(arguments).remove(0);
                self.nodes.retain(|other, _| !other.starts_with(&path));
            }
            other => assert!(!arguments.contains(self.root.to_str().unwrap()), "nobody follows {other}: {text}"),
        }
    }

    /// Number of bytes of each file that were read from the disk, by the file's name at that time.
    pub(crate) fn read_back(&self) -> Vec<(&Path, u64)> {
        self.backs.iter().filter(|(_, back)| back.read > 0).map(|(path, back)| (&**path, back.read)).collect()
    }

    fn changed(&mut self, at: usize, path: &Path) {
        if let Some(node) = self.nodes.get_mut(path) {
            node.changed = at;
        }
    }

    fn appears(&mut self, at: usize, path: PathBuf) {
        if path.starts_with(&self.root) {
            self.nodes.insert(path, Node { named: at, changed: at, synced: 0 });
        }
    }

    fn renamed(&mut self, at: usize, from: &Path, to: &Path) {
        if !from.starts_with(&self.root) {
            return;
        }
        self.renames.push(Renamed { from: from.to_owned(), to: to.to_owned(), nodes: self.nodes.clone() });
        self.nodes.retain(|path, _| !path.starts_with(to));
        let moved: Vec<_> = self.nodes.keys().filter(|path| path.starts_with(from)).cloned().collect();
        for path in moved {
            let mut node = self.nodes.remove(&path).unwrap();
            if path == from {
                node.named = at;
            }
            // `join` with an empty path would add a slash.
            let below = path.strip_prefix(from).unwrap().components();
            self.nodes.insert(to.components().chain(below).collect(), node);
        }
    }

    /// The last rename to this path.
    pub(crate) fn rename_to(&self, path: &Path) -> &Renamed {
        let found = self.renames.iter().rev().find(|renamed| renamed.to == path);
        found.unwrap_or_else(|| panic!("nothing was renamed to {}: {:?}", path.display(), self.renames))
    }

    /// Parts of the path of a file or folder, from the root on, that a power cut after the end could lose.
    pub(crate) fn lost(&self, path: &Path) -> Vec<String> {
        lost_on_the_way(&self.nodes, &self.root, path)
    }
}

impl Renamed {
    /// Parts of the renamed node that were not durable yet: its contents, and everything below it with the names in it.
    pub(crate) fn unsafe_in_it(&self) -> Vec<String> {
        let below = self.nodes.iter().filter(|(path, _)| path.starts_with(&self.from));
        below.filter_map(|(path, node)| what_is_lost(&self.nodes, path, node, *path == self.from)).collect()
    }

    /// The names below the renamed node.
    pub(crate) fn holds(&self) -> Vec<String> {
        let below = self.nodes.keys().filter_map(|path| path.strip_prefix(&self.from).ok());
        below.map(|path| path.to_str().unwrap().to_owned()).filter(|path| !path.is_empty()).collect()
    }

    /// Parts of another node's path, from the root on, that a power cut at that moment could lose.
    pub(crate) fn lost_before(&self, root: &Path, path: &Path) -> Vec<String> {
        lost_on_the_way(&self.nodes, root, path)
    }
}

fn lost_on_the_way(nodes: &BTreeMap<PathBuf, Node>, root: &Path, path: &Path) -> Vec<String> {
    let way = path.ancestors().take_while(|folder| *folder != root);
    let mut lost: Vec<_> = way
        .filter_map(|path| match nodes.get(path) {
            Some(node) => what_is_lost(nodes, path, node, false),
            None => Some(format!("{} is not there", path.display())),
        })
        .collect();
    lost.reverse();
    lost
}

fn what_is_lost(
    nodes: &BTreeMap<PathBuf, Node>,
    path: &Path,
    node: &Node,
    name_does_not_count: bool,
) -> Option<String> {
    let is_folder = nodes.keys().any(|other| other.parent() == Some(path));
    // A folder's own contents are its names, and each of them is checked.
    if !is_folder && node.synced <= node.changed {
        return Some(format!("content of {}", path.display()));
    }
    let folder = path.parent().and_then(|folder| nodes.get(folder))?;
    (!name_does_not_count && folder.synced <= node.named).then(|| format!("name of {}", path.display()))
}

/// Path of the n-th descriptor, as strace's `-y` prints it.
fn opened(text: &str, n: usize) -> PathBuf {
    let mut descriptors = text.split(", ").filter_map(|argument| {
        let (number, path) = argument.split_once('<')?;
        let (path, _) = path.split_once('>')?;
        (number == "AT_FDCWD" || number.bytes().all(|b| b.is_ascii_digit())).then(|| PathBuf::from(path))
    });
    descriptors.nth(n).unwrap_or_default()
}

/// Paths in a call's arguments, each resolved from its folder.
fn named(arguments: &str) -> Vec<PathBuf> {
    let mut folder = PathBuf::new();
    let mut paths = Vec::new();
    for argument in arguments.split(", ") {
        if let Some(path) =
            argument.trim_end().trim_end_matches(')').strip_prefix('"').and_then(|rest| rest.strip_suffix('"'))
        {
            paths.push(folder.join(path));
            folder = PathBuf::new();
        } else if argument.contains('<') {
            folder = opened(argument, 0);
        }
    }
    paths
}

#[test]
fn a_trace_says_what_a_power_cut_could_take() {
    let good = [
        "7 mkdir(\"/v/stage\", 0700) = 0",
        "7 openat(AT_FDCWD</>, \"/v/stage/db\", O_WRONLY|O_CREAT|O_EXCL, 0600) = 5</v/stage/db>",
        "7 write(5</v/stage/db>, \"a = b, <c>\"..., 9) = 9",
        "7 fdatasync(5</v/stage/db>) = 0",
        "7 fsync(6</v/stage>) = 0",
        "7 rename(\"/v/stage\", \"/v/data\") = 0",
        "7 fsync(4</v>) = 0",
        "7 +++ exited with 0 +++",
    ];
    let judge = |lines: &[&str]| {
        let trace = Trace::read(Path::new("/v"), &lines.join("\n"));
        let renamed = trace.rename_to(Path::new("/v/data"));
        assert_eq!(renamed.holds(), ["db"]);
        (renamed.unsafe_in_it(), trace.lost(Path::new("/v/data/db")))
    };
    assert_eq!(judge(&good), (vec![], vec![]));
    let without = |n: usize| judge(&[&good[..n], &good[n + 1..]].concat());
    let lost = |what: &str| vec![what.to_owned()];
    assert_eq!(without(3).0, lost("content of /v/stage/db"));
    assert_eq!(without(4).0, lost("name of /v/stage/db"));
    assert_eq!(without(6), (vec![], lost("name of /v/data")));

    // A descriptor of another file in the same folder, and a failed sync, make nothing durable.
    let with = |n: usize, line: &str| judge(&[&good[..n], &[line], &good[n + 1..]].concat());
    assert_eq!(with(3, "7 fdatasync(5</v/stage/other>) = 0").0, lost("content of /v/stage/db"));
    assert_eq!(with(3, "7 fdatasync(5</v/stage/db>) = -1 EIO (Input/output error)").0, lost("content of /v/stage/db"));

    // A sync that started before a write ended does not cover the write, whichever ends first.
    let crossed = |lines: [&str; 4]| judge(&[&good[..2], &lines, &good[4..]].concat()).0;
    let (write, wrote) = ("7 write(5</v/stage/db>, \"x\", 1 <unfinished ...>", "7 <... write resumed>) = 1");
    let (sync, synced) = ("8 fsync(5</v/stage/db> <unfinished ...>", "8 <... fsync resumed>) = 0");
    assert_eq!(crossed([write, wrote, sync, synced]), [] as [&str; 0]);
    for order in [[write, sync, wrote, synced], [sync, write, wrote, synced], [write, sync, synced, wrote]] {
        assert_eq!(crossed(order), lost("content of /v/stage/db"), "{order:?}");
    }

    // strace pads a short line before its result.
    let (rename, renamed) = ("7 rename(\"/v/stage\", \"/v/data\" <unfinished ...>", "7 <... rename resumed>)      = 0");
    assert_eq!(judge(&[&good[..5], &[rename, renamed], &good[6..]].concat()), (vec![], vec![]));

    // By descriptors of folders.
    let relative =
        [&good[..5], &["7 renameat2(3</v>, \"stage\", AT_FDCWD</v>, \"data\", RENAME_NOREPLACE) = 0", good[6]]];
    assert_eq!(judge(&relative.concat()), (vec![], vec![]));
}

#[test]
fn a_trace_says_what_was_read_from_the_disk() {
    let (write, sync) = ("7 write(5</v/db>, \"x, 1\"..., 8) = 8", "8 fdatasync(5</v/db>) = 0");
    let (forget, read) =
        ("8 fadvise64(5</v/db>, 0, 8, POSIX_FADV_DONTNEED) = 0", "8 pread64(5</v/db>, \"x, 1\"..., 512, 0) = 8");
    let judge = |lines: &[&str]| {
        let trace = Trace::read(Path::new("/v"), &lines.join("\n"));
        trace.read_back().first().map_or(0, |(_, bytes)| *bytes)
    };
    assert_eq!(judge(&[write, sync, forget, read]), 8);
    let to_the_end = "8 fadvise64(5</v/db>, 0, 0, POSIX_FADV_DONTNEED) = 0";
    assert_eq!(judge(&[write, sync, to_the_end, read]), 8);
    let more = ["8 fadvise64(5</v/db>, 8, 8, POSIX_FADV_DONTNEED) = 0", "8 pread64(5</v/db>, \"y\", 512, 8) = 8"];
    assert_eq!(judge(&[write, sync, forget, read, write, sync, more[0], more[1]]), 16);
    // From memory, or of other bytes than the final ones.
    for wrong in [
        &[write, sync, read][..],
        &[write, forget, read],
        &[write, forget, sync, read],
        &[sync, write, forget, read],
        &[write, sync, read, forget],
        &[write, sync, "8 fadvise64(5</v/db>, 0, 8, POSIX_FADV_WILLNEED) = 0", read],
        &[write, sync, forget, more[1]],
        &["8 fdatasync(5</v/db> <unfinished ...>", write, "8 <... fdatasync resumed>) = 0", forget, read],
    ] {
        assert_eq!(judge(wrong), 0, "{wrong:?}");
    }
    assert_eq!(judge(&[write, sync, forget, read, write, more[0], more[1]]), 8, "written since");
}
