//! Percent-encodes and decodes UTF-8 text.

use crate::answer::Failure;

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

pub(crate) fn decode(encoded: &str) -> Result<String, Failure> {
    let bad = || Failure::bad_input(format!("not percent-encoded UTF-8: {encoded}"));
    let mut bytes = vec![];
    let mut rest = encoded.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|byte| char::from(byte).to_digit(16)).ok_or_else(bad);
        let value = 16 * digit()? + digit()?;
        bytes.push(u8::try_from(value).map_err(|_| bad())?);
    }
    String::from_utf8(bytes).map_err(|_| bad())
}
