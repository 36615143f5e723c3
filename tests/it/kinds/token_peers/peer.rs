//! One foreign lock library in a separate process.

use lockson_harness::HelperProcess;

use crate::support::prelude::*;

/// A lock library that was started for one lock of the shared server.
pub(super) struct Peer {
    process: HelperProcess,
    pub(super) name: String,
    /// Whether the library reports a release of a lock that another owner holds.
    pub(super) tells_of_release: bool,
}

impl Peer {
    pub(super) fn start(library: &str, name: &str) -> Self {
        // Beside the folder that cargo gives to tests.
        let built = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("token_peers");
        let program = built.join(library).join("peer");
        assert!(program.exists(), "{} is not there; `make interop` builds it", program.display());
        let process = HelperProcess::spawn(&program, &[&RedisServer::shared().url(), name]);
        let greeting = process.next_line(START);
        assert!(greeting.starts_with("ready "), "{greeting}");
        println!("{greeting}");
        Self { process, name: name.to_owned(), tells_of_release: library != "rslock" }
    }

    pub(super) fn send(&mut self, request: &str) {
        self.process.send(request);
    }

    #[track_caller]
    pub(super) fn answer(&self) -> String {
        self.process.next_line(SOON)
    }

    pub(super) fn answer_if_any(&self, within: Duration) -> Option<String> {
        self.process.line(within)
    }

    #[track_caller]
    pub(super) fn expect(&mut self, request: &str, answer: &str) {
        assert_eq!(self.process.ask(request, SOON), answer, "{request}");
    }

    /// A value in the library's own form.
    pub(super) fn sample(&mut self) -> Vec<u8> {
        self.expect("try 30000", "taken");
        let value = value(&self.name).expect("it holds");
        self.expect("unlock", "done");
        value
    }
}

/// The bytes under a name.
#[track_caller]
pub(super) fn value(name: &str) -> Option<Vec<u8>> {
    RedisServer::shared().query(&["GET", name])
}

/// A value of this owner with the length of the sample, and with digits and letters in the same places; letters replace
/// bytes that are no text.
pub(super) fn shaped_like(sample: &[u8], owner: &str) -> String {
    let is_hex = sample.iter().all(|byte| byte.is_ascii_hexdigit() || *byte == b'-');
    let letters: &[u8] = if is_hex { b"0123456789abcdef" } else { b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdef" };
    // Every letter of the owner affects all later letters of the value, and the last letters differ most.
    let mut state: u64 = 0xcbf2_9ce4_8422_2325;
    let mut stir = |byte: u8| {
        state = (state ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        usize::try_from(state >> 40).expect("24 bits")
    };
    for byte in owner.bytes() {
        stir(byte);
    }
    let letter = |&byte: &u8| match byte {
        b'-' | b'=' => char::from(byte),
        _ => char::from(letters[stir(byte) % letters.len()]),
    };
    sample.iter().map(letter).collect()
}

/// A virtual machine of Java on a busy computer.
const START: Duration = Duration::from_secs(60);
