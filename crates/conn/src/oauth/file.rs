//! Tokens from a file.

use std::io;
use std::path::PathBuf;

use tokio::io::AsyncReadExt as _;

use super::{BearerToken, TokenError, TokenFuture, TokenProvider};

/// The longest file that is read, in bytes. Tokens are below 16 KiB.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A file that holds a token and nothing else; read for each token, so that whoever renews it (Kubernetes does so with the
/// tokens of service accounts) needs to tell nobody. Kafka's `FileJwtRetriever`.
#[derive(Clone, Debug)]
pub struct TokenFile {
    path: PathBuf,
}

impl TokenFile {
    /// A file by its path.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    async fn read(&self) -> Result<BearerToken, TokenError> {
        let failed = |source: io::Error| TokenError::File { path: self.path.clone(), source };
        let file = tokio::fs::File::open(&self.path).await.map_err(failed)?;
        let mut bytes = Vec::new();
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).await.map_err(failed)?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(TokenError::Malformed("it is longer than 1 MiB"));
        }
        let text = std::str::from_utf8(&bytes).map_err(|_| TokenError::Malformed("it is not text"))?;
        BearerToken::new(text)
    }
}

impl TokenProvider for TokenFile {
    fn token(&self) -> TokenFuture<'_> {
        Box::pin(self.read())
    }
}
