//! Percent-encodes and decodes the values of the peer protocol.

/// Keeps letters, digits and `- . _ ~`; writes every other byte as `%XX`.
pub(crate) fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// A list of values; commas inside an item are encoded.
pub(crate) fn encode_all<S: AsRef<str>>(items: &[S]) -> String {
    items.iter().map(|item| encode(item.as_ref())).collect::<Vec<_>>().join(",")
}

pub(crate) fn decode(encoded: &str) -> String {
    let mut bytes = vec![];
    let mut rest = encoded;
    while let Some((plain, coded)) = rest.split_once('%') {
        bytes.extend_from_slice(plain.as_bytes());
        let byte = coded.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.unwrap_or_else(|| panic!("not percent-encoded: {encoded}")));
        rest = &coded[2..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8(bytes).expect("a peer writes UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_decoded_is_what_was_encoded() {
        for text in ["", "a-b_c.d~", "a b,c=%\n", "schön ✓ {x}"] {
            assert_eq!(decode(&encode(text)), text);
        }
        assert_eq!(encode_all(&["a,b", "c"]), "a%2Cb,c");
    }
}
