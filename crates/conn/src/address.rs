use std::fmt;
use std::str::FromStr;

/// Where a broker listens: a host name or IP address, and a TCP port (1 to 65535).
///
/// Parses from `HOST:PORT`; an IPv6 address stands in brackets, `[::1]:9092`. Prints in the same form. The
/// name is kept as given and resolved anew at each dial, so a broker that moved is found again.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BrokerAddress {
    host: String,
    port: u16,
}

impl BrokerAddress {
    /// An address from its parts, as Metadata and FindCoordinator answers bring them (`port` is an int32
    /// there).
    ///
    /// # Errors
    /// An empty host, one with a space or a character in it that no host name has (`/`, `@`, `?` …), or a port
    /// outside 1 to 65535.
    pub fn new(host: &str, port: i32) -> Result<Self, ParseBrokerAddressError> {
        let fail = |reason| ParseBrokerAddressError::new(&format!("{host}:{port}"), reason);
        check_host(host).map_err(fail)?;
        match u16::try_from(port) {
            Ok(port) if port > 0 => Ok(Self { host: host.to_owned(), port }),
            _ => Err(fail(Reason::PortOutOfRange)),
        }
    }

    /// Host name or IP address, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// TCP port, 1 to 65535.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Parses a comma-separated list, as `bootstrap.servers` holds it. Spaces around a comma and empty
    /// entries are passed over.
    ///
    /// # Errors
    /// The first entry that is no address, or an empty list.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, ParseBrokerAddressError> {
        let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        let addresses = entries.map(str::parse).collect::<Result<Vec<Self>, _>>()?;
        if addresses.is_empty() {
            return Err(ParseBrokerAddressError::new(text, Reason::Empty));
        }
        Ok(addresses)
    }
}

impl FromStr for BrokerAddress {
    type Err = ParseBrokerAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).map_err(|reason| ParseBrokerAddressError::new(text, reason))
    }
}

impl fmt::Display for BrokerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// A text that is no broker address; says which and why. What may be a password in front of an `@` is left out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a broker address: {reason}")]
pub struct ParseBrokerAddressError {
    text: String,
    reason: Reason,
}

impl ParseBrokerAddressError {
    fn new(text: &str, reason: Reason) -> Self {
        let text = match text.rsplit_once('@') {
            Some((_, address)) => format!("…@{address}"),
            None => text.to_owned(),
        };
        Self { text, reason }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum Reason {
    #[error("it is empty; expected HOST:PORT")]
    Empty,
    #[error("it is a URL; leave the scheme out and write HOST:PORT")]
    Url,
    #[error("the port is missing; expected HOST:PORT, for example broker1:9092")]
    PortMissing,
    #[error("the port must be a number from 1 to 65535; expected HOST:PORT")]
    PortOutOfRange,
    #[error("the host is missing; expected HOST:PORT")]
    HostMissing,
    #[error("the host holds a character that no host name has; expected HOST:PORT")]
    HostInvalid,
    #[error("an IPv6 address stands in brackets: [ADDRESS]:PORT")]
    Brackets,
}

fn parse(text: &str) -> Result<BrokerAddress, Reason> {
    if text.is_empty() {
        return Err(Reason::Empty);
    }
    if text.contains("://") {
        return Err(Reason::Url);
    }
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']').ok_or(Reason::Brackets)?;
            // A scope (`fe80::1%eth0`) is the resolver's business.
            let bare = host.split('%').next().unwrap_or(host);
            bare.parse::<std::net::Ipv6Addr>().map_err(|_| Reason::Brackets)?;
            (host, rest.strip_prefix(':').ok_or(Reason::PortMissing)?)
        }
        None => {
            let (host, port) = text.rsplit_once(':').ok_or(Reason::PortMissing)?;
            if host.contains(':') {
                return Err(Reason::Brackets);
            }
            (host, port)
        }
    };
    check_host(host)?;
    if !port.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Reason::PortOutOfRange);
    }
    match port.parse::<u16>() {
        Ok(port) if port > 0 => Ok(BrokerAddress { host: host.to_owned(), port }),
        _ => Err(Reason::PortOutOfRange),
    }
}

fn check_host(host: &str) -> Result<(), Reason> {
    if host.is_empty() {
        return Err(Reason::HostMissing);
    }
    let forbidden = |c: char| c.is_whitespace() || c.is_control() || "/\\@?#,;=\"'`<>(){}[]".contains(c);
    if host.contains(forbidden) { Err(Reason::HostInvalid) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_prints_as_it_was_written() {
        for text in
            ["broker1:9092", "10.0.0.1:1", "[::1]:65535", "b.example.com.:9092", "[fe80::1%eth0]:9092"]
        {
            assert_eq!(text.parse::<BrokerAddress>().unwrap().to_string(), text);
        }
        assert_eq!(BrokerAddress::new("::1", 9092).unwrap().to_string(), "[::1]:9092");
    }

    #[test]
    fn what_is_no_address_is_answered_with_what_to_write() {
        let cases = [
            ("", "empty"),
            ("broker1", "port is missing"),
            ("broker1:", "1 to 65535"),
            ("broker1:0", "1 to 65535"),
            ("broker1:65536", "1 to 65535"),
            ("broker1:+9", "1 to 65535"),
            (":9092", "host is missing"),
            ("::1:9092", "brackets"),
            ("[::1:9092", "brackets"),
            ("[nonsense]:9092", "brackets"),
            ("[::1]", "port is missing"),
            ("kafka://broker1:9092", "URL"),
            ("a b:9092", "no host name"),
            ("user@broker1:9092", "no host name"),
            ("http://a:1", "URL"),
            ("//a:1", "HOST:PORT"),
            ("a/b:1", "HOST:PORT"),
            ("a:1/", "HOST:PORT"),
            ("a\u{1}:1", "HOST:PORT"),
            ("a?x:1", "HOST:PORT"),
        ];
        for (text, part) in cases {
            let error = text.parse::<BrokerAddress>().unwrap_err().to_string();
            assert!(error.contains(part), "{text:?} gave: {error}");
        }
        assert!(BrokerAddress::new("broker1", -1).is_err());
        assert!(BrokerAddress::new("", 9092).is_err());
    }

    #[test]
    fn a_password_before_the_host_is_not_repeated() {
        for text in ["user:secret@broker1:9092", "http://user:secret@broker1:9092", "secret@broker1:x"] {
            let error = text.parse::<BrokerAddress>().unwrap_err();
            assert!(!format!("{error} {error:?}").contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_list_names_the_entry_that_is_wrong() {
        let list = BrokerAddress::parse_list(" a:1, b:2,,").unwrap();
        assert_eq!(list.iter().map(ToString::to_string).collect::<Vec<_>>(), ["a:1", "b:2"]);
        assert!(BrokerAddress::parse_list("a:1,b").unwrap_err().to_string().contains("\"b\""));
        assert!(BrokerAddress::parse_list(" , ").is_err());
    }
}
