//! Reads one annotation from a downward API file.
//!
//! kubelet writes a line for each annotation, `key="value"`, the value as a Go string literal: so a value can never
//! begin a line of its own. A line that is not understood is passed over; a missing permission is then a refusal.

/// The value of this annotation, if the file has it.
pub(crate) fn annotation(file: &str, key: &str) -> Option<String> {
    file.lines().find_map(|line| {
        let (name, literal) = line.split_once('=')?;
        let quoted = literal.strip_prefix('"')?.strip_suffix('"')?;
        (name == key).then(|| unescape(quoted)).flatten()
    })
}

/// Undoes what Go's `strconv.Quote` does. `None`: it is no such literal.
fn unescape(quoted: &str) -> Option<String> {
    let mut out = Vec::with_capacity(quoted.len());
    let mut chars = quoted.chars();
    let mut buffer = [0; 4];
    while let Some(c) = chars.next() {
        if c == '"' {
            return None;
        }
        if c != '\\' {
            out.extend_from_slice(c.encode_utf8(&mut buffer).as_bytes());
            continue;
        }
        let simple = match chars.next()? {
            'a' => b'\x07',
            'b' => b'\x08',
            'f' => b'\x0c',
            'n' => b'\n',
            'r' => b'\r',
            't' => b'\t',
            'v' => b'\x0b',
            '\\' => b'\\',
            '"' => b'"',
            'x' => u8::try_from(hex(&mut chars, 2)?).ok()?,
            'u' => {
                out.extend_from_slice(char::from_u32(hex(&mut chars, 4)?)?.encode_utf8(&mut buffer).as_bytes());
                continue;
            }
            'U' => {
                out.extend_from_slice(char::from_u32(hex(&mut chars, 8)?)?.encode_utf8(&mut buffer).as_bytes());
                continue;
            }
            _ => return None,
        };
        out.push(simple);
    }
    String::from_utf8(out).ok()
}

fn hex(chars: &mut std::str::Chars<'_>, digits: usize) -> Option<u32> {
    (0..digits).try_fold(0, |number, _| Some(number * 16 + chars.next()?.to_digit(16)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_value_is_found_and_read() {
        let file = "a/b=\"1\"\nholdfast.dev/may-start-empty=\"0f-1\"\nz=\"tab\\t \\\"q\\\" \\u00e9 \\x41\"\n";
        assert_eq!(annotation(file, "holdfast.dev/may-start-empty").as_deref(), Some("0f-1"));
        assert_eq!(annotation(file, "z").as_deref(), Some("tab\t \"q\" é A"));
        assert_eq!(annotation(file, "b"), None);
        assert_eq!(annotation("", "b"), None);
    }

    #[test]
    fn another_annotations_value_is_no_annotation() {
        let file = "evil=\"\\nholdfast.dev/may-start-empty=\\\"u\\\"\"\n";
        assert_eq!(annotation(file, "holdfast.dev/may-start-empty"), None);
    }

    #[test]
    fn half_a_line_says_nothing() {
        for line in ["k=", "k=\"", "k=\"v", "k=v", "k", "k=\"a\"b\"", "k=\"\\\"", "k=\"\\x4\"", "k=\"\\q\""] {
            assert_eq!(annotation(line, "k"), None, "{line:?}");
        }
        assert_eq!(annotation("k=\"\"", "k").as_deref(), Some(""));
    }

    proptest! {
        #[test]
        fn anything_is_read_without_a_panic(file in "\\PC{0,60}", key in "[a-z]{0,3}") {
            let _ = annotation(&file, &key);
            let _ = annotation(&format!("{key}=\"{file}\""), &key);
        }
    }
}
