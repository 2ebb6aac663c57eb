//! Those who ask: each asks one thing after the other, with deadlines long, short and hopeless, and gives up on some.

use std::time::Duration;

use strandline_client::admin::Admin;
use strandline_meta::{Cluster, ErrorCode, Recovery, RefreshError, SendError};
use tokio::time::{Instant, sleep, timeout};

use crate::questions::{Caller, QUESTIONS, Question};
use crate::schedule::Random;
use crate::world::{SharedWorld, World};

/// What a call may take beyond its deadline, beside the lateness of the machine's timers: on a busy machine a thread that is
/// about to give an answer may have to wait for its turn.
pub(crate) const SLACK: Duration = Duration::from_secs(1);
/// A call that has not ended so long after its deadline never will.
const NEVER: Duration = Duration::from_secs(15);
/// In calm every question is answered within this.
const CALM_DEADLINE: Duration = Duration::from_secs(12);

/// Asks until it is told to stop: `stop` holds true.
pub(crate) async fn call_on(
    world: SharedWorld,
    cluster: Cluster,
    mut random: Random,
    stop: tokio::sync::watch::Receiver<bool>,
) {
    while !*stop.borrow() {
        // Offsets and Fetch are what clients ask most.
        let question =
            if random.one_in(2) { *random.pick(&QUESTIONS[..2]) } else { *random.pick(&QUESTIONS) };
        let span = match random.within(0..10) {
            0 => random.millis(0..3),
            1..4 => random.millis(5..300),
            _ => random.millis(300..3_000),
        };
        let give_up = random.one_in(4).then(|| random.millis(0..200));
        let patience = Patience { span, give_up };
        one_call(&world, &cluster, question, &mut random, Some(patience)).await;
        sleep(random.millis(0..20)).await;
    }
}

/// How long a caller waits while faults befall the cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// From the call to its deadline.
    span: Duration,
    /// After this the call is dropped.
    give_up: Option<Duration>,
}

/// Asks once. Without a patience all is well, and the question must be answered within [`CALM_DEADLINE`].
pub(crate) async fn one_call(
    world: &World,
    cluster: &Cluster,
    question: Question,
    random: &mut Random,
    patience: Option<Patience>,
) {
    let calm = patience.is_none();
    let Patience { span, give_up } = patience.unwrap_or(Patience { span: CALM_DEADLINE, give_up: None });
    let began = Instant::now();
    let deadline = began + span;
    let caller = Caller { world, cluster, admin: Admin::new(cluster), deadline, calm };
    let asked = caller.ask(question, random);
    let bound = give_up.unwrap_or(span + NEVER);
    let errors = match timeout(bound, asked).await {
        Ok(errors) => errors,
        Err(_) if give_up.is_some() => {
            world.count(format!("{question:?} given up"));
            return;
        }
        Err(_) => {
            world.violation(format!("{question:?} with a deadline of {span:?} never ended"));
            return;
        }
    };
    let ended = Instant::now();
    let late = ended.saturating_duration_since(deadline);
    if late > SLACK + world.lateness.since(began) {
        world.violation(format!(
            "{question:?} with a deadline of {span:?} ended {late:?} after it: {errors:?}"
        ));
    }
    if errors.is_empty() {
        world.count(format!("{question:?} answered"));
    }
    for error in errors {
        let early = deadline.saturating_duration_since(ended);
        let end = if early > SLACK { "ended early: " } else { "" };
        world.count(format!("{question:?} {end}{}", words(&error)));
        if calm {
            world.violation(format!("{question:?} failed though all is well: {error:?}"));
        } else if !may_be_final(question, &error) && early > Duration::ZERO {
            world.violation(format!(
                "{question:?} gave up {early:?} before its deadline of {span:?}: {error:?}"
            ));
        }
    }
}

/// True for an error that a call may end with before its deadline: what a further try would not cure.
fn may_be_final(question: Question, error: &SendError) -> bool {
    match error {
        // What does not exist, as brokers have said several times since the call began.
        SendError::Code { code: ErrorCode::UnknownTopicOrPartition, .. }
        | SendError::Topic { .. }
        | SendError::NoSuchPartition { .. }
        | SendError::NoSuchBroker { .. } => true,
        // No broker at all could tell, each was asked.
        SendError::Refresh(RefreshError::NoAnswer { .. }) => true,
        // These are one try each.
        _ if matches!(question, Question::Dedicated | Question::OwnCluster) => true,
        error => matches!(error.recovery(), Recovery::Fail | Recovery::Forbidden | Recovery::Authenticate),
    }
}

/// The name of a variant.
pub(crate) fn head(error: &impl std::fmt::Debug) -> String {
    format!("{error:?}").split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned()
}

/// The kind of an error and of what caused it, in few words.
fn words(error: &SendError) -> String {
    match error {
        SendError::Deadline { source: None, .. } => "Deadline".to_owned(),
        SendError::Deadline { source: Some(source), .. } => format!("Deadline < {}", words(source)),
        SendError::Refresh(RefreshError::NoAnswer { source, .. }) => format!("NoAnswer < {}", words(source)),
        SendError::Refresh(RefreshError::Deadline { source: Some(source), .. }) => {
            format!("Refresh Deadline < {}", words(source))
        }
        SendError::Refresh(error) => format!("Refresh {}", head(error)),
        SendError::Request { source, .. } => format!("Request {}", head(source)),
        SendError::Code { code, .. } => format!("Code {code:?}"),
        SendError::Topic { code, .. } => format!("Topic {code:?}"),
        other => head(other),
    }
}
