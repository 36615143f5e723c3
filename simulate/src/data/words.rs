//! The words of commands: numbers, ranges, bounds; lists as replies.

use crate::reply::Reply;

pub(super) struct Bound {
    pub(super) score: f64,
    pub(super) excluded: bool,
}

impl Bound {
    pub(super) fn read(text: &[u8]) -> Result<Self, String> {
        let (excluded, text) = text.strip_prefix(b"(").map_or((false, text), |text| (true, text));
        Ok(Self { score: float(text)?, excluded })
    }
}

pub(super) fn members(found: Vec<(f64, Vec<u8>)>, has_scores: bool) -> Reply {
    let each = |(score, member): (f64, Vec<u8>)| {
        let score = has_scores.then(|| Reply::text(score.to_string()));
        [Reply::Bulk(member)].into_iter().chain(score)
    };
    Reply::List(found.into_iter().flat_map(each).collect())
}

/// The places from one to another, which count from the end where they are negative.
pub(super) fn slice(length: usize, from: i64, to: i64) -> Option<std::ops::Range<usize>> {
    let length = i64::try_from(length).ok()?;
    let [from, to] = [from, to].map(|at| if at < 0 { at + length } else { at });
    let (from, to) = (from.max(0), to.min(length - 1));
    (from <= to).then(|| Some(usize::try_from(from).ok()?..usize::try_from(to + 1).ok()?))?
}

pub(super) fn count(number: usize) -> Reply {
    Reply::Int(i64::try_from(number).unwrap_or(i64::MAX))
}

pub(super) fn integer(text: &[u8]) -> Result<i64, String> {
    let text = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    text.ok_or_else(|| "ERR value is not an integer or out of range".to_owned())
}

pub(super) fn float(text: &[u8]) -> Result<f64, String> {
    let text = std::str::from_utf8(text).map_err(|_| NO_FLOAT.to_owned())?;
    text.parse().map_err(|_| NO_FLOAT.to_owned())
}

const NO_FLOAT: &str = "ERR min or max is not a float";
