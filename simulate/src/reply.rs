//! Requests and replies of Redis, by version 2 of its protocol.

/// A reply, or a message.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    Nil,
    Int(i64),
    Bulk(Vec<u8>),
    Status(&'static str),
    Error(String),
    List(Vec<Reply>),
    NoList,
}

impl Reply {
    pub fn text(text: impl Into<String>) -> Self {
        Self::Bulk(text.into().into_bytes())
    }

    pub fn maybe(bytes: Option<Vec<u8>>) -> Self {
        bytes.map_or(Self::Nil, Self::Bulk)
    }

    pub fn error(text: impl Into<String>) -> Self {
        Self::Error(text.into())
    }

    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Nil => out.extend(b"$-1\r\n"),
            Self::Int(number) => out.extend(format!(":{number}\r\n").bytes()),
            Self::Bulk(bytes) => {
                out.extend(format!("${}\r\n", bytes.len()).bytes());
                out.extend(bytes);
                out.extend(b"\r\n");
            }
            Self::Status(text) => out.extend(format!("+{text}\r\n").bytes()),
            Self::Error(text) => out.extend(format!("-{text}\r\n").bytes()),
            Self::NoList => out.extend(b"*-1\r\n"),
            Self::List(replies) => {
                out.extend(format!("*{}\r\n", replies.len()).bytes());
                replies.iter().for_each(|reply| reply.write(out));
            }
        }
    }
}

/// Takes the first whole request off the front of `input`.
pub fn take_request(input: &mut Vec<u8>) -> Option<Vec<Vec<u8>>> {
    let mut at = 0;
    let count = number(input, &mut at, b'*')?;
    let mut words = vec![];
    for _ in 0..count {
        let length = number(input, &mut at, b'$')?;
        words.push(input.get(at..at + length)?.to_vec());
        at += length + 2;
    }
    (at <= input.len()).then(|| input.drain(..at));
    Some(words)
}

fn number(input: &[u8], at: &mut usize, sign: u8) -> Option<usize> {
    let rest = input.get(*at..)?;
    let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
    assert_eq!(rest[0], sign, "requests are lists of words");
    *at += end + 2;
    std::str::from_utf8(&rest[1..end]).ok()?.parse().ok()
}
