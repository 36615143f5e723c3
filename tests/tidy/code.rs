//! Source as text: the code without comments, and the ends of blocks.

/// The marks before items for tests.
pub(crate) const FOR_TESTS: &[&str] = &["#[cfg(test)]", "#[cfg(all(test, shuttle))]"];

/// The code with the same length and lines, with blanks for comments and for the content of strings.
pub(crate) fn without_comments_and_strings(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let (blank, skip) = match rest {
            [b'/', b'/', ..] => (0, rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len())),
            [b'/', b'*', ..] => (0, find(rest, b"*/").map_or(rest.len(), |end| end + 2)),
            [b'r', b'"' | b'#', ..] if !(at > 0 && is_name_char(char::from(bytes[at - 1]))) => raw_string(rest),
            [b'"', ..] => (1, string(rest)),
            // A character, not a lifetime.
            [b'\'', b'\\', ..] => (1, 2 + rest[2..].iter().skip(1).position(|&b| b == b'\'').map_or(1, |end| end + 2)),
            [b'\'', _, b'\'', ..] => (1, 3),
            _ => {
                at += 1;
                continue;
            }
        };
        let (from, to) = (at + blank, (at + skip - blank.min(skip)).max(at + blank));
        code[from..to].iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
        at += skip.max(1);
    }
    // Characters of several bytes stand in comments and strings only, or were not touched.
    String::from_utf8_lossy(&code).into_owned()
}

fn raw_string(rest: &[u8]) -> (usize, usize) {
    let hashes = rest[1..].iter().take_while(|&&byte| byte == b'#').count();
    if rest.get(1 + hashes) != Some(&b'"') {
        return (0, 0); // a raw name
    }
    let end = [b"\"".as_slice(), &b"#".repeat(hashes)].concat();
    let open = hashes + 2;
    (0, find(&rest[open..], &end).map_or(rest.len(), |at| open + at + end.len()))
}

fn string(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != b'"' {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(rest.len())
}

/// The code with blanks in place of items, or of the whole file, for tests.
pub(crate) fn without_tests(code: &str) -> String {
    let mut left = code.to_owned();
    if FOR_TESTS.iter().any(|mark| left.contains(&mark.replacen('#', "#!", 1))) {
        return String::new();
    }
    while let Some((at, mark)) = FOR_TESTS.iter().find_map(|mark| Some((left.find(mark)?, mark))) {
        let after = at + mark.len();
        let end = match (left[after..].find(';'), body_after(&left, after)) {
            (Some(semicolon), Some((open, _))) if after + semicolon < open => after + semicolon + 1,
            (_, Some((_, close))) => close,
            (Some(semicolon), None) => after + semicolon + 1,
            (None, None) => left.len(),
        };
        let blank: String = left[at..end].chars().map(|c| if c == '\n' { '\n' } else { ' ' }).collect();
        left.replace_range(at..end, &blank);
    }
    left
}

/// The start and the end of the first block in braces after `at`; `None` if a `;` comes first.
pub(crate) fn body_after(code: &str, at: usize) -> Option<(usize, usize)> {
    let mut depth = 0_usize;
    let mut open = None;
    for (offset, c) in code[at..].char_indices() {
        match c {
            ';' if depth == 0 && !code[at..at + offset].ends_with(|c: char| c.is_ascii_digit()) => return None,
            '{' => {
                open.get_or_insert(at + offset);
                depth += 1;
            }
            '}' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some((open?, at + offset + 1));
                }
            }
            _ => {}
        }
    }
    None
}

fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}

pub(crate) fn is_name_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}
