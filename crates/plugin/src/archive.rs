//! A tar archive (ustar), packed with gzip. PURE: bytes in, bytes out.
//!
//! Decides the headers: regular files of one time and one owner.

use std::io::Write as _;

use anyhow::{Context as _, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;

/// Size of a record.
const RECORD: usize = 512;

/// Longest name in a header.
const LONGEST_NAME: usize = 100;

/// Packs files: name and contents.
pub fn pack(files: &[(String, Vec<u8>)], seconds: u64) -> anyhow::Result<Vec<u8>> {
    let mut out = GzEncoder::new(vec![], Compression::default());
    for (name, contents) in files {
        out.write_all(&header(name, contents.len(), seconds)?)?;
        out.write_all(contents)?;
        out.write_all(&vec![0; contents.len().next_multiple_of(RECORD) - contents.len()])?;
    }
    out.write_all(&[0; 2 * RECORD])?;
    Ok(out.finish()?)
}

fn header(name: &str, size: usize, seconds: u64) -> anyhow::Result<[u8; RECORD]> {
    // A longer name is split at a slash: the folder has a field of its own.
    let (folder, file) =
        if name.len() <= LONGEST_NAME { ("", name) } else { name.rsplit_once('/').context("a folder")? };
    ensure!(file.len() <= LONGEST_NAME && folder.len() <= 155, "the name {name} is too long for an archive");
    let mut record = [0; RECORD];
    let mut put = |at: usize, bytes: &[u8]| record[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, file.as_bytes());
    put(100, b"0000600\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{size:011o}\0").as_bytes());
    put(136, format!("{seconds:011o}\0").as_bytes());
    // The sum counts its own field as spaces.
    put(148, b"        ");
    put(156, b"0");
    put(257, b"ustar\x0000");
    put(345, folder.as_bytes());
    let sum: u32 = record.iter().map(|byte| u32::from(*byte)).sum();
    record[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    Ok(record)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn tar_reads_the_archive() {
        let long = format!("{}/{}", "f".repeat(90), "n".repeat(60));
        let files = vec![
            ("CONTENTS".to_owned(), b"list".to_vec()),
            (long.clone(), vec![b'x'; 1000]),
            ("empty".to_owned(), vec![]),
        ];
        let packed = pack(&files, 1_764_244_800).unwrap();
        let run = |args: &[&str]| {
            let mut child =
                Command::new("tar").args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            child.stdin.take().unwrap().write_all(&packed).unwrap();
            let out = child.wait_with_output().unwrap();
            assert!(out.status.success());
            out.stdout
        };
        let listed = String::from_utf8(run(&["tzf", "-"])).unwrap();
        assert_eq!(listed.lines().collect::<Vec<_>>(), ["CONTENTS", long.as_str(), "empty"]);
        assert_eq!(run(&["xzOf", "-", &long]), vec![b'x'; 1000]);
        assert!(pack(&[("n".repeat(101), vec![])], 0).is_err());
    }
}
