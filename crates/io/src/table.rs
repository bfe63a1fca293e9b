//! Text for a terminal: columns, and bytes that cannot move the cursor.

/// Aligns rows in columns.
pub fn align_columns<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

/// Returns text unchanged; replaces invalid UTF-8 and control characters by `\xNN`.
pub fn printable(bytes: &[u8]) -> String {
    let mut out = String::new();
    let hex = |out: &mut String, bytes: &[u8]| bytes.iter().for_each(|byte| out.push_str(&format!("\\x{byte:02x}")));
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() {
                hex(&mut out, c.encode_utf8(&mut [0; 4]).as_bytes());
            } else {
                out.push(c);
            }
        }
        hex(&mut out, chunk.invalid());
    }
    out
}
