//! The way to a broker, step by step: name, TCP, TLS, versions, SASL.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use strandline_conn::{
    BrokerAddress, BrokerVersions, CloseReason, ConnectError, ConnectStep, Connection, ConnectionConfig,
    RequestError, SaslConfig, Security, TlsConfig, inspect_tls,
};
use strandline_protocol::ApiKey;
use strandline_protocol::messages::DescribeClusterRequest;
use tokio::time::{Instant, timeout_at};

use super::certificate;
use super::check::{Check, Section, Verdict};
use crate::exit::Exit;
use crate::moment::{Clock, show_span};
use crate::sources::{chain, connect_exit, connect_hint};

/// A certificate that ends sooner than this is warned of.
const EXPIRES_SOON_MS: i64 = 30 * 86_400_000;

/// The steps, in the order in which they come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Name,
    Tcp,
    Tls,
    Versions,
    Sasl,
}

const STEPS: [(Step, &str); 5] = [
    (Step::Name, "name"),
    (Step::Tcp, "TCP"),
    (Step::Tls, "TLS"),
    (Step::Versions, "versions"),
    (Step::Sasl, "SASL"),
];

/// The step that an error is about.
fn blame(error: &ConnectError) -> Step {
    match error {
        ConnectError::Resolve { .. } => Step::Name,
        ConnectError::Unreachable { .. } => Step::Tcp,
        ConnectError::TlsMismatch { .. } | ConnectError::Tls { .. } | ConnectError::TlsConfig(_) => Step::Tls,
        ConnectError::Authentication { .. }
        | ConnectError::Scram { .. }
        | ConnectError::Mechanism { .. }
        | ConnectError::NoSasl { .. }
        | ConnectError::Token { .. } => Step::Sasl,
        ConnectError::TimedOut { step, .. }
        | ConnectError::Closed { step, .. }
        | ConnectError::Broker { step, .. }
        | ConnectError::Malformed { step, .. } => match step {
            ConnectStep::Resolving => Step::Name,
            ConnectStep::Dialling => Step::Tcp,
            ConnectStep::Tls => Step::Tls,
            ConnectStep::Versions => Step::Versions,
            _ => Step::Sasl,
        },
        _ => Step::Versions,
    }
}

/// The rows of one address, as they become known.
struct Steps {
    address: String,
    rows: [Option<Check>; 5],
}

impl Steps {
    fn set(&mut self, step: Step, verdict: Verdict, detail: impl Into<String>) -> &mut Check {
        let name = STEPS[step as usize].1;
        let detail = detail.into();
        let check = match verdict {
            Verdict::Ok => Check::ok(Section::Connection, name, detail),
            Verdict::Warning => Check::warning(Section::Connection, name, detail),
            Verdict::Failed => Check::failed(Section::Connection, name, Exit::Unreachable, detail),
            Verdict::Skipped => Check::skipped(Section::Connection, name, detail),
        };
        self.rows[step as usize].insert(check.subject(self.address.clone()))
    }

    /// Puts an error where it belongs; what a step before had to say stays with it.
    fn fail(&mut self, error: &ConnectError) {
        let step = blame(error);
        let before = self.rows[step as usize].take().filter(|row| row.verdict == Verdict::Ok);
        let before = before.map(|row| format!("{}; ", row.detail)).unwrap_or_default();
        let told = chain(error);
        let help = if step == Step::Tls { tls_help(&told) } else { None };
        let check = self.set(step, Verdict::Failed, format!("{before}{told}"));
        check.exit = connect_exit(error);
        check.help = help.or(connect_hint(error)).map(str::to_owned);
    }

    /// Five rows: what was not reached says why.
    fn finish(mut self) -> Vec<Check> {
        let mut failed = None;
        for (step, name) in STEPS {
            match (&self.rows[step as usize], failed) {
                (Some(row), _) if row.verdict == Verdict::Failed => failed = failed.or(Some(name)),
                (Some(_), _) => {}
                (None, Some(earlier)) => {
                    self.set(step, Verdict::Skipped, format!("{earlier} failed"));
                }
                // A later step succeeded without this one having anything to say.
                (None, None) => {
                    self.set(step, Verdict::Skipped, "nothing to say");
                }
            }
        }
        self.rows.into_iter().flatten().collect()
    }
}

/// Goes the whole way to a broker.
///
/// Each step ends by the connect timeout of the settings. A listener is asked for its versions before anybody
/// authenticates, as Kafka allows, so that the two are told apart.
pub(super) async fn check(
    address: &BrokerAddress,
    config: &Arc<ConnectionConfig>,
    clock: &Clock,
) -> Vec<Check> {
    let mut steps = Steps { address: address.to_string(), rows: Default::default() };
    let Some(targets) = resolve(&mut steps, address, config).await else { return steps.finish() };
    let Some(target) = dial(&mut steps, &targets, config.connect_timeout).await else {
        return steps.finish();
    };
    match &config.security {
        Security::Plaintext => {
            steps.set(Step::Tls, Verdict::Skipped, "security.protocol asks for none");
        }
        Security::Tls(tls) => {
            if !handshake(&mut steps, address, target, tls, config.connect_timeout, clock).await {
                return steps.finish();
            }
        }
    }
    let anonymous = Arc::new(ConnectionConfig { sasl: None, ..(**config).clone() });
    let since = Instant::now();
    let connection =
        match Connection::connect(address.clone(), &anonymous, since + config.connect_timeout).await {
            Ok(connection) => connection,
            Err(error) => {
                steps.fail(&error);
                return steps.finish();
            }
        };
    steps.set(Step::Versions, Verdict::Ok, kafka(connection.versions()));
    match &config.sasl {
        None => without_sasl(&mut steps, &connection, config.connect_timeout).await,
        Some(sasl) => authenticate(&mut steps, address, config, sasl).await,
    }
    steps.finish()
}

async fn resolve(
    steps: &mut Steps,
    address: &BrokerAddress,
    config: &ConnectionConfig,
) -> Option<Vec<SocketAddr>> {
    let deadline = Instant::now() + config.connect_timeout;
    let found = timeout_at(deadline, config.dialler.resolve(address.host(), address.port())).await;
    let (detail, help) = match found {
        Ok(Ok(targets)) if !targets.is_empty() => {
            let all: Vec<String> = targets.iter().map(|target| target.ip().to_string()).collect();
            let detail = match address.host().parse::<IpAddr>() {
                Ok(_) => "an address, there is no name to look up".to_owned(),
                Err(_) => format!("{} is {}", address.host(), all.join(", ")),
            };
            steps.set(Step::Name, Verdict::Ok, detail);
            return Some(targets);
        }
        Ok(Ok(_)) => {
            (format!("{} has no address", address.host()), "is the name spelt as in DNS or /etc/hosts?")
        }
        Ok(Err(error)) => (
            format!("{} cannot be resolved: {error}", address.host()),
            "is the name spelt as in DNS or /etc/hosts, and does this machine ask the right DNS server?",
        ),
        Err(_) => (
            format!("{} has no answer from DNS within {:?}", address.host(), config.connect_timeout),
            "is the DNS server of this machine up?",
        ),
    };
    steps.set(Step::Name, Verdict::Failed, detail).help = Some(help.to_owned());
    None
}

/// Tries every address of the name; gives the first that accepts.
async fn dial(steps: &mut Steps, targets: &[SocketAddr], within: Duration) -> Option<SocketAddr> {
    let attempt = |target: SocketAddr| async move {
        let since = Instant::now();
        let dialled = timeout_at(since + within, tokio::net::TcpStream::connect(target)).await;
        let outcome = match dialled {
            Ok(Ok(_)) => Ok(since.elapsed()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("no answer within {within:?}")),
        };
        (target, outcome)
    };
    let outcomes = join_all(targets.iter().copied().map(attempt)).await;
    let told: Vec<String> = outcomes
        .iter()
        .map(|(target, outcome)| match outcome {
            Ok(took) => format!("{target} accepts after {}", millis(*took)),
            Err(error) => format!("{target}: {error}"),
        })
        .collect();
    let good = outcomes.iter().find(|(_, outcome)| outcome.is_ok()).map(|(target, _)| *target);
    let all_good = outcomes.iter().all(|(_, outcome)| outcome.is_ok());
    let verdict = match (good, all_good) {
        (None, _) => Verdict::Failed,
        (Some(_), false) => Verdict::Warning,
        (Some(_), true) => Verdict::Ok,
    };
    steps.set(Step::Tcp, verdict, told.join("; ")).help = match verdict {
        Verdict::Failed => {
            Some("is the broker running, is this its client port, does a firewall stand between?".to_owned())
        }
        Verdict::Warning => Some(
            "one address of the name does not accept: every connection that meets it first is slower"
                .to_owned(),
        ),
        _ => None,
    };
    good
}

async fn handshake(
    steps: &mut Steps,
    address: &BrokerAddress,
    target: SocketAddr,
    tls: &TlsConfig,
    within: Duration,
    clock: &Clock,
) -> bool {
    let seen = inspect_tls(address, target, tls, Instant::now() + within).await;
    let shown = seen.certificates.first().map(|der| certificate::read(der));
    let mut told = Vec::new();
    told.extend(seen.protocol.map(str::to_owned));
    let mut expires_soon = None;
    match &shown {
        None => {}
        Some(None) => told.push("a certificate that cannot be read".to_owned()),
        Some(Some(shown)) => {
            let left = shown.not_after_ms.saturating_sub(clock.now_ms);
            let until = match left {
                left if left < 0 => format!("expired {} ago", show_span(-left)),
                left => format!("for {} more", show_span(left)),
            };
            told.push(format!("certificate {} for {}", shown.subject, shown.names()));
            told.push(format!("signed by {}", shown.issuer));
            told.push(format!("valid until {} ({until})", clock.show(shown.not_after_ms)));
            if clock.now_ms < shown.not_before_ms {
                told.push(format!("not before {}", clock.show(shown.not_before_ms)));
            }
            expires_soon = (0..EXPIRES_SOON_MS).contains(&left).then_some(left);
        }
    }
    let told = told.join(", ");
    match (seen.error, expires_soon) {
        (Some(error), _) => {
            if !told.is_empty() {
                steps.set(Step::Tls, Verdict::Ok, told);
            }
            steps.fail(&error);
            false
        }
        (None, Some(_)) => {
            let help = "the certificate ends within 30 days: renew it, or nobody will get in then";
            steps.set(Step::Tls, Verdict::Warning, told).help = Some(help.to_owned());
            true
        }
        (None, None) => {
            steps.set(Step::Tls, Verdict::Ok, told);
            true
        }
    }
}

/// What to do about a certificate, by the words of the TLS layer; `None` where those do not say more than others.
fn tls_help(told: &str) -> Option<&'static str> {
    const HELP: [(&str, &str); 6] = [
        (
            "certificate expired",
            "renew the certificate of the broker's listener (and check this machine's clock)",
        ),
        ("not valid yet", "check this machine's clock"),
        (
            "not valid for name",
            "dial the broker by a name that its certificate is for, or give the listener one for this name; \
             ssl.endpoint.identification.algorithm= (empty) does without, and then whoever holds any certificate of \
             that authority can pose as the broker",
        ),
        (
            "CertificateRequired",
            "the listener wants a client certificate: ssl.keystore.location (PEM), or ssl.certificate.location and \
             ssl.key.location",
        ),
        (
            "CaUsedAsEndEntity",
            "the listener shows the certificate of an authority (basicConstraints CA:TRUE) as its own, which Java lets \
             pass: give the listener a certificate that this authority has signed",
        ),
        (
            "UnknownIssuer",
            "ssl.truststore.location (or ssl.ca.location) has to hold the authority that signed this certificate",
        ),
    ];
    HELP.iter().find(|(words, _)| told.contains(words)).map(|(_, help)| *help)
}

/// A listener that wants SASL ends the connection at the first request that is none of it.
async fn without_sasl(steps: &mut Steps, connection: &Connection, within: Duration) {
    let asked = connection.send(|_| DescribeClusterRequest::default(), Instant::now() + within).await;
    let wanted = matches!(&asked, Err(RequestError::NoAnswer { source, .. })
        if matches!(**source, CloseReason::ClosedUnauthenticated));
    if !wanted {
        let (verdict, listener) = match asked {
            Ok(_) => (Verdict::Skipped, "the listener wants none".to_owned()),
            Err(error) => {
                (Verdict::Warning, format!("what the listener wants was not learned: {}", chain(&error)))
            }
        };
        steps.set(Step::Sasl, verdict, format!("security.protocol asks for none, and {listener}"));
        return;
    }
    let detail =
        "the listener ends the connection at the first request: it wants SASL, and no credentials are set";
    let check = steps.set(Step::Sasl, Verdict::Failed, detail);
    check.exit = Exit::Rights;
    check.help = Some(
        "-X security.protocol=SASL_PLAINTEXT (or SASL_SSL), sasl.mechanism, sasl.username and sasl.password; or use \
         another port"
            .to_owned(),
    );
}

async fn authenticate(
    steps: &mut Steps,
    address: &BrokerAddress,
    config: &Arc<ConnectionConfig>,
    sasl: &SaslConfig,
) {
    let since = Instant::now();
    match Connection::connect(address.clone(), config, since + config.connect_timeout).await {
        Ok(_) => {
            let who = user(sasl).map(|user| format!(" as {user}")).unwrap_or_default();
            let took = millis(since.elapsed());
            steps.set(Step::Sasl, Verdict::Ok, format!("{}{who}, after {took}", sasl.mechanism()));
        }
        Err(error) => {
            // What failed now and not before failed for the credentials' sake.
            let check = steps.set(Step::Sasl, Verdict::Failed, chain(&error));
            check.exit = connect_exit(&error);
            check.help = connect_hint(&error).map(str::to_owned).or_else(|| {
                matches!(error, ConnectError::Authentication { .. } | ConnectError::Scram { .. })
                    .then(|| credentials_hint(sasl).to_owned())
            });
        }
    }
}

/// What to check when the broker refuses what `sasl` shows it.
fn credentials_hint(sasl: &SaslConfig) -> &'static str {
    match sasl {
        SaslConfig::OAuthBearer(_) => {
            "check that the token has not expired, and that its issuer, audience and scope are those that this \
             cluster's listener accepts"
        }
        _ => "check sasl.username and sasl.password, and that the user exists on this cluster",
    }
}

/// Who the credentials are of, where they say it.
pub(super) fn user(sasl: &SaslConfig) -> Option<&str> {
    match sasl {
        SaslConfig::Plain(credentials)
        | SaslConfig::ScramSha256(credentials)
        | SaslConfig::ScramSha512(credentials) => Some(&credentials.username),
        _ => None,
    }
}

pub(super) fn millis(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1_000.0)
}

/// Which Kafka a broker is, by the newest versions it answers: from each release on that newest version of that request.
///
/// Source: the message schemas of Kafka 3.9.1, 4.0.0, 4.3.1 and 4.4.0.
const RELEASES: [(&str, ApiKey, i16); 4] = [
    ("Kafka 4.4 or newer", ApiKey::ApiVersions, 5),
    ("Kafka 4.3", ApiKey::DescribeLogDirs, 5),
    ("Kafka 4.0 to 4.2", ApiKey::Metadata, 13),
    ("Kafka 3.9", ApiKey::ListOffsets, 9),
];

/// `Kafka 4.3`, as the versions tell it.
pub(super) fn kafka(versions: &BrokerVersions) -> &'static str {
    let serves = |api, version| versions.range(api).is_some_and(|range| range.last >= version);
    let release = RELEASES.iter().find(|(_, api, version)| serves(*api, *version));
    release.map_or("older than Kafka 3.9", |(name, ..)| name)
}
