//! SCRAM (RFC 5802, RFC 7677) as a client speaks it: a state machine that owns no socket.
//!
//! `ClientFirst` makes the first message; `server_first` checks the server's answer and gives the work that
//! costs CPU ([`Proof`], to be done off the executor); `Proof::compute` gives the final message and the
//! signature that the server's last message must carry.

use std::fmt;
use std::num::NonZeroU32;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::rand::SecureRandom as _;
use ring::{digest, hmac, pbkdf2};

/// Iterations a server may ask for. Fewer than 4 096 is what RFC 5802 and Kafka call too weak
/// (`ScramMechanism#minIterations`); the upper bound keeps a hostile server from pricing our CPU (a million
/// takes under a second).
const ITERATIONS_MIN: u32 = 4_096;
const ITERATIONS_MAX: u32 = 1_000_000;

/// Longest server message that is looked at, in bytes. Kafka's are below 200.
const MESSAGE_BYTES_MAX: usize = 16 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hash {
    Sha256,
    Sha512,
}

impl Hash {
    fn hmac(self) -> hmac::Algorithm {
        match self {
            Self::Sha256 => hmac::HMAC_SHA256,
            Self::Sha512 => hmac::HMAC_SHA512,
        }
    }

    fn digest(self) -> &'static digest::Algorithm {
        match self {
            Self::Sha256 => &digest::SHA256,
            Self::Sha512 => &digest::SHA512,
        }
    }

    fn pbkdf2(self) -> pbkdf2::Algorithm {
        match self {
            Self::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
            Self::Sha512 => pbkdf2::PBKDF2_HMAC_SHA512,
        }
    }
}

/// Why a SCRAM exchange ended. Whatever the reason, the password itself was not sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScramError {
    /// The broker's message does not have the form of RFC 5802. It is no Kafka broker, or is broken.
    #[error("the broker's SCRAM message is malformed: {0}")]
    Malformed(&'static str),
    /// The broker's nonce does not extend ours: someone replays an old exchange.
    #[error("the broker's SCRAM nonce does not begin with ours")]
    Nonce,
    /// The credential's iteration count is outside 4096 to 1000000. Set the credential again with one inside.
    #[error("the broker asks for {0} SCRAM iterations; accepted are {ITERATIONS_MIN} to {ITERATIONS_MAX}")]
    Iterations(u64),
    /// The broker could not prove that it knows the password: it is not the broker it claims to be.
    #[error("the broker's SCRAM signature is wrong: it does not know the password")]
    ServerSignature,
    /// The broker refused, in its own words.
    #[error("{0}")]
    Refused(String),
    /// User name or password holds a control character, which SASLprep (RFC 4013) forbids.
    #[error("the {0} holds a control character")]
    ControlCharacter(&'static str),
    /// The operating system gave no randomness for the nonce.
    #[error("the operating system gave no random bytes")]
    NoRandomness,
}

/// The exchange after our first message: waits for the server's first.
pub(crate) struct ClientFirst {
    hash: Hash,
    password: Vec<u8>,
    client_nonce: String,
    bare: String,
}

/// What PBKDF2 has to do, and what it needs for it. [`Proof::compute`] takes milliseconds up to a second.
pub(crate) struct Proof {
    hash: Hash,
    password: Vec<u8>,
    salt: Vec<u8>,
    iterations: NonZeroU32,
    /// Without the proof.
    final_message: String,
    auth_message: String,
}

/// The exchange after our final message: waits for the server's signature.
pub(crate) struct AwaitSignature {
    server_key: hmac::Key,
    auth_message: String,
}

impl fmt::Debug for ClientFirst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientFirst").field("hash", &self.hash).finish_non_exhaustive()
    }
}

impl fmt::Debug for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proof").field("hash", &self.hash).finish_non_exhaustive()
    }
}

impl fmt::Debug for AwaitSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AwaitSignature").finish_non_exhaustive()
    }
}

impl ClientFirst {
    /// Begins an exchange with a fresh random nonce (192 bits).
    pub(crate) fn new(hash: Hash, username: &str, password: &str) -> Result<Self, ScramError> {
        let mut nonce = [0; 24];
        ring::rand::SystemRandom::new().fill(&mut nonce).map_err(|_| ScramError::NoRandomness)?;
        Self::with_nonce(hash, username, password, BASE64.encode(nonce))
    }

    fn with_nonce(
        hash: Hash,
        username: &str,
        password: &str,
        client_nonce: String,
    ) -> Result<Self, ScramError> {
        let username = prepare(username, "user name")?;
        let password = prepare(password, "password")?;
        let name = username.replace('=', "=3D").replace(',', "=2C");
        let bare = format!("n={name},r={client_nonce}");
        Ok(Self { hash, password: password.into_bytes(), client_nonce, bare })
    }

    /// client-first-message: no channel binding, no authorization id.
    pub(crate) fn message(&self) -> Vec<u8> {
        format!("n,,{}", self.bare).into_bytes()
    }

    /// Checks server-first-message.
    pub(crate) fn server_first(self, message: &[u8]) -> Result<Proof, ScramError> {
        let message = text(message)?;
        if let Some(error) = message.strip_prefix("e=") {
            return Err(ScramError::Refused(error.to_owned()));
        }
        let mut attributes = message.split(',');
        let mut next = |name: &str, missing| {
            let attribute = attributes.next().and_then(|attribute| attribute.strip_prefix(name));
            attribute.ok_or(ScramError::Malformed(missing))
        };
        // A mandatory extension ("m=") would stand first; RFC 5802 has a client refuse what it does not know.
        let nonce = next("r=", "no nonce")?;
        let salt = next("s=", "no salt")?;
        let iterations = next("i=", "no iteration count")?;
        if !nonce.starts_with(&self.client_nonce) || nonce.len() == self.client_nonce.len() {
            return Err(ScramError::Nonce);
        }
        let salt = BASE64.decode(salt).map_err(|_| ScramError::Malformed("the salt is not base64"))?;
        let iterations = bounded_iterations(iterations)?;
        let final_message = format!("c=biws,r={nonce}");
        let auth_message = format!("{},{message},{final_message}", self.bare);
        Ok(Proof { hash: self.hash, password: self.password, salt, iterations, final_message, auth_message })
    }
}

impl Proof {
    /// Computes client-final-message. Blocks the thread for `iterations` rounds of HMAC: run it off the
    /// executor.
    pub(crate) fn compute(self) -> (Vec<u8>, AwaitSignature) {
        let algorithm = self.hash.hmac();
        let mut salted = vec![0; self.hash.digest().output_len()];
        pbkdf2::derive(self.hash.pbkdf2(), self.iterations, &self.salt, &self.password, &mut salted);
        let salted = hmac::Key::new(algorithm, &salted);

        let client_key = hmac::sign(&salted, b"Client Key");
        let stored_key = digest::digest(self.hash.digest(), client_key.as_ref());
        let signature =
            hmac::sign(&hmac::Key::new(algorithm, stored_key.as_ref()), self.auth_message.as_bytes());
        let proof: Vec<u8> = client_key.as_ref().iter().zip(signature.as_ref()).map(|(a, b)| a ^ b).collect();
        let message = format!("{},p={}", self.final_message, BASE64.encode(proof));

        let server_key = hmac::sign(&salted, b"Server Key");
        let server_key = hmac::Key::new(algorithm, server_key.as_ref());
        (message.into_bytes(), AwaitSignature { server_key, auth_message: self.auth_message })
    }
}

impl AwaitSignature {
    /// Checks server-final-message: only now is the broker known to know the password.
    pub(crate) fn server_final(self, message: &[u8]) -> Result<(), ScramError> {
        let message = text(message)?;
        let first = message.split(',').next().unwrap_or(message);
        if let Some(error) = first.strip_prefix("e=") {
            return Err(ScramError::Refused(error.to_owned()));
        }
        let signature = first.strip_prefix("v=").ok_or(ScramError::Malformed("no signature"))?;
        let signature =
            BASE64.decode(signature).map_err(|_| ScramError::Malformed("the signature is not base64"))?;
        // In constant time.
        hmac::verify(&self.server_key, self.auth_message.as_bytes(), &signature)
            .map_err(|_| ScramError::ServerSignature)
    }
}

/// The part of SASLprep (RFC 4013) that changes nothing for a well-typed name: ASCII passes unchanged, ASCII
/// control characters are refused. Other characters pass as they are, unnormalised, which is what Kafka's own
/// client does (`ScramFormatter#normalize` takes the UTF-8 bytes), so a password set through Kafka's tools
/// matches.
fn prepare(text: &str, what: &'static str) -> Result<String, ScramError> {
    if text.chars().any(char::is_control) {
        return Err(ScramError::ControlCharacter(what));
    }
    Ok(text.to_owned())
}

fn text(message: &[u8]) -> Result<&str, ScramError> {
    if message.len() > MESSAGE_BYTES_MAX {
        return Err(ScramError::Malformed("it is longer than 16 KiB"));
    }
    std::str::from_utf8(message).map_err(|_| ScramError::Malformed("it is not UTF-8"))
}

fn bounded_iterations(text: &str) -> Result<NonZeroU32, ScramError> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(ScramError::Malformed("the iteration count is no number"));
    }
    let count = text.parse::<u64>().unwrap_or(u64::MAX);
    u32::try_from(count)
        .ok()
        .filter(|count| (ITERATIONS_MIN..=ITERATIONS_MAX).contains(count))
        .and_then(NonZeroU32::new)
        .ok_or(ScramError::Iterations(count))
}

#[cfg(test)]
mod tests {
    use proptest::{prop_assert, proptest};

    use super::*;

    const CLIENT_NONCE: &str = "rOprNGfwEbeRWgbNEkqO";
    const SERVER_FIRST: &str =
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";

    fn begin() -> ClientFirst {
        ClientFirst::with_nonce(Hash::Sha256, "user", "pencil", CLIENT_NONCE.to_owned()).unwrap()
    }

    #[test]
    fn the_example_of_rfc_7677_section_3_is_answered_byte_for_byte() {
        let first = begin();
        assert_eq!(first.message(), b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
        let (message, signature) = first.server_first(SERVER_FIRST.as_bytes()).unwrap().compute();
        assert_eq!(
            String::from_utf8(message).unwrap(),
            "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        );
        assert_eq!(signature.server_final(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="), Ok(()));
    }

    #[test]
    fn a_server_that_does_not_know_the_password_is_found_out() {
        let signature = || begin().server_first(SERVER_FIRST.as_bytes()).unwrap().compute().1;
        let wrong = b"v=7rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";
        assert_eq!(signature().server_final(wrong), Err(ScramError::ServerSignature));
        assert_eq!(signature().server_final(b"v="), Err(ScramError::ServerSignature));
        assert_eq!(signature().server_final(b""), Err(ScramError::Malformed("no signature")));
        let refused = ScramError::Refused("invalid-proof".to_owned());
        assert_eq!(signature().server_final(b"e=invalid-proof"), Err(refused));
    }

    #[test]
    fn a_server_first_message_is_taken_only_when_it_is_whole_and_ours() {
        let cases: &[(&str, ScramError)] = &[
            ("", ScramError::Malformed("no nonce")),
            ("m=ext,r=rOprNGfwEbeRWgbNEkqOx,s=AAAA,i=4096", ScramError::Malformed("no nonce")),
            ("r=rOprNGfwEbeRWgbNEkqOx,i=4096", ScramError::Malformed("no salt")),
            ("r=rOprNGfwEbeRWgbNEkqOx,s=AAAA", ScramError::Malformed("no iteration count")),
            ("r=rOprNGfwEbeRWgbNEkqOx,s=!,i=4096", ScramError::Malformed("the salt is not base64")),
            (
                "r=rOprNGfwEbeRWgbNEkqOx,s=AAAA,i=-1",
                ScramError::Malformed("the iteration count is no number"),
            ),
            ("r=other,s=AAAA,i=4096", ScramError::Nonce),
            ("r=rOprNGfwEbeRWgbNEkqO,s=AAAA,i=4096", ScramError::Nonce),
            ("r=rOprNGfwEbeRWgbNEkqOx,s=AAAA,i=4095", ScramError::Iterations(4095)),
            ("r=rOprNGfwEbeRWgbNEkqOx,s=AAAA,i=1000001", ScramError::Iterations(1_000_001)),
            ("r=rOprNGfwEbeRWgbNEkqOx,s=AAAA,i=99999999999999999999", ScramError::Iterations(u64::MAX)),
            ("e=unknown-user", ScramError::Refused("unknown-user".to_owned())),
        ];
        for (message, expected) in cases {
            assert_eq!(begin().server_first(message.as_bytes()).unwrap_err(), *expected, "{message}");
        }
        assert!(begin().server_first(&[0xff; 4]).is_err());
        assert!(begin().server_first(&[b'a'; MESSAGE_BYTES_MAX + 1]).is_err());
    }

    #[test]
    fn a_name_is_escaped_and_a_control_character_refused() {
        let first = ClientFirst::with_nonce(Hash::Sha512, "a=b,c", "x", "N".to_owned()).unwrap();
        assert_eq!(first.message(), b"n,,n=a=3Db=2Cc,r=N");
        let refused = ClientFirst::new(Hash::Sha512, "a\u{7}", "x").unwrap_err();
        assert_eq!(refused, ScramError::ControlCharacter("user name"));
        let refused = ClientFirst::new(Hash::Sha512, "a", "x\n").unwrap_err();
        assert_eq!(refused, ScramError::ControlCharacter("password"));
    }

    #[test]
    fn debug_output_holds_no_password() {
        let first = begin();
        assert!(!format!("{first:?}").contains("pencil"));
        let proof = first.server_first(SERVER_FIRST.as_bytes()).unwrap();
        assert!(!format!("{proof:?}").contains("pencil"));
    }

    #[test]
    fn two_exchanges_have_different_nonces() {
        let nonce = || ClientFirst::new(Hash::Sha256, "u", "p").unwrap().client_nonce;
        assert_ne!(nonce(), nonce());
    }

    proptest! {
        #[test]
        fn no_message_of_a_server_makes_the_client_panic(
            first in "(r=rOprNGfwEbeRWgbNEkqO)?[ -~]{0,12}(,s=[A-Za-z0-9+/]{0,8}={0,2})?(,i=[0-9-]{0,12})?.{0,4}",
            last in "(v=|e=)?.{0,40}",
        ) {
            // The work itself is bounded by the number of iterations, and left out here.
            let _ = begin().server_first(first.as_bytes());
            let key = hmac::Key::new(hmac::HMAC_SHA256, b"key");
            let signature = AwaitSignature { server_key: key, auth_message: String::new() };
            prop_assert!(signature.server_final(last.as_bytes()).is_err());
        }
    }
}
