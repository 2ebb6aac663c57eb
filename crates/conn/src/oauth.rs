//! SASL OAUTHBEARER (RFC 7628, KIP-255): where tokens come from, and the one message that carries one.

use std::fmt;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::ExitStatus;

use crate::{Password, Recovery};

#[cfg(feature = "oidc")]
mod client_credentials;
mod command;
mod file;

#[cfg(feature = "oidc")]
pub use client_credentials::ClientCredentials;
pub use command::TokenCommand;
pub use file::TokenFile;

/// What a [`TokenProvider`] gives back later.
pub type TokenFuture<'a> = Pin<Box<dyn Future<Output = Result<BearerToken, TokenError>> + Send + 'a>>;

/// Where OAUTHBEARER gets its tokens from: [`TokenCommand`],  one of the
/// program's own.
///
/// It is asked at each dial and at each renewal of a session (KIP-368), so it gives a fresh token each time, or one whose
/// life it knows to be long enough. The connection's deadline is kept by dropping the future.
pub trait TokenProvider: fmt::Debug + Send + Sync {
    /// A token that a broker will accept now.
    fn token(&self) -> TokenFuture<'_>;
}

/// A bearer token (RFC 6750), with the SASL extensions (KIP-342) that go with it. `Debug` hides the token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BearerToken {
    token: Password,
    extensions: Vec<(String, String)>,
}

impl BearerToken {
    /// A token, without the blanks and line ends around it.
    ///
    /// # Errors
    /// The text is empty, or holds a character that no bearer token has (RFC 6750, section 2.1).
    pub fn new(token: &str) -> Result<Self, TokenError> {
        let token = token.trim();
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
        if token.is_empty() {
            return Err(TokenError::Malformed("it is empty"));
        }
        if !token.bytes().all(legal) {
            return Err(TokenError::Malformed("it holds a character that no bearer token has"));
        }
        Ok(Self { token: Password::new(token), extensions: Vec::new() })
    }

    /// Adds SASL extensions, as names and values.
    ///
    /// # Errors
    /// A name is not made of ASCII letters or is `auth`, which is reserved; a value holds what is neither printable ASCII
    /// nor white space (`SaslExtensions`).
    pub fn with_extensions(
        mut self,
        extensions: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, TokenError> {
        for (name, value) in extensions {
            let named = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphabetic());
            let valued = value.bytes().all(|byte| matches!(byte, b'\t' | b'\r' | b'\n' | 0x20..=0x7e));
            if !named || name == "auth" || value.is_empty() || !valued {
                return Err(TokenError::Extension);
            }
            self.extensions.push((name, value));
        }
        Ok(self)
    }

    /// What no error may repeat.
    pub(crate) fn reveal(&self) -> &str {
        self.token.reveal()
    }

    /// The client's only message: RFC 7628, section 3.1, as Kafka's `OAuthBearerClientInitialResponse`.
    pub(crate) fn message(&self) -> Vec<u8> {
        let mut message = format!("n,,\u{1}auth=Bearer {}\u{1}", self.token.reveal());
        for (name, value) in &self.extensions {
            message.push_str(&format!("{name}={value}\u{1}"));
        }
        message.push('\u{1}');
        message.into_bytes()
    }
}

/// What a client answers to the broker's report of an error, so that the broker ends the exchange: RFC 7628, section 3.2.3.
pub(crate) const ERROR_SEEN: &[u8] = b"\x01";

/// Why there is no token. Nothing in it, or in its causes, holds a secret.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// What was given is no token, or comes in no form that is known.
    #[error("what was given as a token is none: {0}")]
    Malformed(&'static str),
    /// A SASL extension has a name or a value that SASL does not allow. Correct it.
    #[error("an extension of the token has a name or a value that SASL does not allow")]
    Extension,
    /// The command could not be run, or its output not be read.
    #[error("the token command {program} cannot be run")]
    Command {
        /// The program, without its arguments.
        program: String,
        /// The operating system's words.
        source: io::Error,
    },
    /// The command ended without success. Its standard error went to ours.
    #[error("the token command {program} failed: {status}")]
    CommandFailed {
        /// The program, without its arguments.
        program: String,
        /// How it ended.
        status: ExitStatus,
    },
    /// The file of the token cannot be read.
    #[error("the token file {} cannot be read", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The token endpoint cannot be reached, or broke off. Try again later.
    #[error("the token endpoint {endpoint} cannot be asked")]
    Endpoint {
        /// Scheme, host and path.
        endpoint: String,
        /// What failed.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The token endpoint refuses this client. Check its id, secret and scope.
    #[error("the token endpoint {endpoint} refused: {said}")]
    Refused {
        /// Scheme, host and path.
        endpoint: String,
        /// The status and, where the answer has them, OAuth's `error` and `error_description`, cut and without control
        /// characters.
        said: String,
    },
    /// The token endpoint's address is none. Correct it.
    #[error("the token endpoint's URL cannot be used: {0}")]
    InvalidEndpoint(&'static str),
    /// A provider's own reason.
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
}

impl TokenError {
    /// What the caller does next.
    pub fn recovery(&self) -> Recovery {
        match self {
            Self::Endpoint { .. } => Recovery::Redial,
            Self::Malformed(_)
            | Self::Extension
            | Self::Command { .. }
            | Self::CommandFailed { .. }
            | Self::File { .. }
            | Self::Refused { .. }
            | Self::InvalidEndpoint(_)
            | Self::Other(_) => Recovery::Authenticate,
        }
    }
}

#[cfg(test)]
mod tests;
