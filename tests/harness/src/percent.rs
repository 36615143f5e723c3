//! Percent-encoding of the values that peers exchange.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// Letters, digits and `- . _ ~` stay.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Encodes one value.
pub fn encode(text: &str) -> String {
    utf8_percent_encode(text, ENCODED).to_string()
}

/// Encodes a list of values; commas inside an item are encoded.
pub fn encode_all<S: AsRef<str>>(items: &[S]) -> String {
    items.iter().map(|item| encode(item.as_ref())).collect::<Vec<_>>().join(",")
}

/// Decodes one value; `None` where the result is not UTF-8.
pub fn decode(encoded: &str) -> Option<String> {
    percent_decode_str(encoded).decode_utf8().ok().map(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoding_undoes_encoding() {
        for text in ["", "a-b_c.d~", "a b,c=%\n", "schön ✓ {x}"] {
            assert_eq!(decode(&encode(text)).as_deref(), Some(text));
        }
        assert_eq!(encode_all(&["a,b", "c"]), "a%2Cb,c");
        assert_eq!(decode("%ff"), None);
    }
}
