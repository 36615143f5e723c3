//! Removes from keys, values and messages the parts that differ between any two runs.

/// Renames the ids of a run, in the order of their appearance.
#[derive(Debug)]
pub(crate) struct Normal {
    /// The name of the scenario's object; becomes `N`.
    name: String,
    /// Client and thread of each owner; become `A`, `B` and so on. A hold number is left out, because Redisson does not
    /// distinguish the holds of one thread.
    owners: Vec<Vec<u8>>,
    /// The raw ids of permits; become `permit 1` and so on.
    permits: Vec<Vec<u8>>,
    /// Fencing tokens; become `token 1` and so on.
    tokens: Vec<Vec<u8>>,
}

impl Normal {
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), owners: vec![], permits: vec![], tokens: vec![] }
    }

    /// A key, a field or a channel.
    pub(crate) fn text(&mut self, raw: &[u8]) -> String {
        match std::str::from_utf8(raw) {
            Ok(text) if !text.contains(char::is_control) => self.without_owners(text).replace(&self.name, "N"),
            _ => self.permit(raw),
        }
    }

    /// A value or a score. Times become distances from now, seen from the server at `now_ms`.
    pub(crate) fn value(&mut self, raw: &[u8], now_ms: i64) -> String {
        let number = std::str::from_utf8(raw).ok().and_then(|text| text.parse::<f64>().ok());
        match number {
            Some(number) if (NO_LEASE..NO_LEASE * 1.1).contains(&number) => "never".to_owned(),
            Some(number) if (MILLIS_OF_TODAY..MICROS_OF_TODAY).contains(&number) => {
                #[expect(clippy::cast_possible_truncation, reason = "today's milliseconds fit")]
                let left_ms = number as i64 - now_ms;
                format!("in {}", seconds(left_ms))
            }
            _ => self.text(raw),
        }
    }

    fn without_owners(&mut self, text: &str) -> String {
        let mut changed = String::new();
        let mut rest = text;
        while let Some((before, owner, after)) = find_owner(rest) {
            changed.push_str(before);
            changed.push_str(&self.letter(owner));
            rest = after;
        }
        changed + rest
    }

    fn letter(&mut self, owner: &str) -> String {
        let place = place(&mut self.owners, owner.as_bytes());
        char::from(b'A' - 1 + u8::try_from(place).expect("a handful of owners")).to_string()
    }

    /// The value of a key that counts tokens.
    pub(crate) fn token(&mut self, raw: &[u8]) -> String {
        format!("token {}", place(&mut self.tokens, raw))
    }

    fn permit(&mut self, raw: &[u8]) -> String {
        format!("permit {}", place(&mut self.permits, raw))
    }
}

/// The position of a value among the known values, counted from 1; an unknown value is added.
fn place(known: &mut Vec<Vec<u8>>, raw: &[u8]) -> usize {
    match known.iter().position(|known| known == raw) {
        Some(place) => place + 1,
        None => {
            known.push(raw.to_owned());
            known.len()
        }
    }
}

/// Milliseconds as whole seconds, rounded up: a time to live set a moment ago appears unchanged.
pub(crate) fn seconds(millis: i64) -> String {
    let up = if millis > 0 { (millis + 999) / 1_000 } else { millis / 1_000 };
    format!("{up} s")
}

/// The first `<uuid>:<thread>`, perhaps followed by `.<hold>`: the text before, client and thread, the text after.
fn find_owner(text: &str) -> Option<(&str, &str, &str)> {
    let starts = text.char_indices().map(|(start, _)| start);
    for start in starts {
        let Some(after_uuid) = text.get(start..start + UUID).filter(|part| is_uuid(part)).map(|_| start + UUID) else {
            continue;
        };
        let Some(thread) = text[after_uuid..].strip_prefix(':') else { continue };
        let digits = count_digits(thread);
        if digits == 0 {
            continue;
        }
        let end = after_uuid + 1 + digits;
        let hold = text[end..].strip_prefix('.').map_or(0, count_digits);
        let after = if hold > 0 { end + 1 + hold } else { end };
        return Some((&text[..start], &text[start..end], &text[after..]));
    }
    None
}

fn is_uuid(text: &str) -> bool {
    text.bytes().enumerate().all(|(place, byte)| match place {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    })
}

fn count_digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

const UUID: usize = 36;
/// Redisson's value for a permit without a lease.
const NO_LEASE: f64 = 922_337_203_685_477.0;
const MILLIS_OF_TODAY: f64 = 1.6e12;
const MICROS_OF_TODAY: f64 = 1.6e15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_become_letters_whatever_their_hold() {
        let mut normal = Normal::new("state-7");
        let (one, two) = ("0b7b1a5c-1111-4222-8333-444455556666:12", "0b7b1a5c-1111-4222-8333-444455556666:3");
        assert_eq!(normal.text(format!("{{state-7}}:{one}:rwlock_timeout:1").as_bytes()), "{N}:A:rwlock_timeout:1");
        assert_eq!(normal.text(format!("{two}.9:write").as_bytes()), "B:write");
        assert_eq!(normal.text(format!("{one}.77").as_bytes()), "A");
        assert_eq!(normal.text(&[0xFF, 1]), "permit 1");
        assert_eq!(normal.text(b"vjJBMabc\0\0\0\0\0\x07\0\0"), "permit 2", "a client of seven bits");
    }

    #[test]
    fn times_become_distances() {
        let mut normal = Normal::new("N");
        assert_eq!(normal.value(b"1795252651605", 1_795_252_621_650), "in 30 s");
        assert_eq!(normal.value(b"922337203685477", 0), "never");
        assert_eq!(normal.token(b"1795252651605123"), "token 1");
        assert_eq!(normal.value(b"3", 0), "3");
    }
}
