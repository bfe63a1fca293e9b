//! Who may read the files of this process: the owner alone, or the owner and the group.
//!
//! It decides by the umask, once and before the first thread, so that no writer of this process and no program that it starts
//! can make a file that every user of the host reads. Modes of files and folders that exist stay as they are.

use rustix::fs::Mode;

/// Makes files 0600 and folders 0700 from now on, whatever the umask was; for a group too: 0660 and 0770.
pub fn make_private(for_group: bool) {
    let cut = if for_group { Mode::RWXO } else { Mode::RWXG | Mode::RWXO };
    let _before = rustix::process::umask(cut);
}
