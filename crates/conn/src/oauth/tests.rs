use super::*;
use crate::peer::chain;

#[test]
fn the_message_is_that_of_rfc_7628() {
    let token = BearerToken::new(" vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==\n").unwrap();
    assert_eq!(token.message(), b"n,,\x01auth=Bearer vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==\x01\x01");
    let extensions = [("logicalCluster".to_owned(), "lkc-1 x".to_owned())];
    let token = BearerToken::new("t").unwrap().with_extensions(extensions).unwrap();
    assert_eq!(token.message(), b"n,,\x01auth=Bearer t\x01logicalCluster=lkc-1 x\x01\x01");
}

#[test]
fn what_could_break_out_of_the_message_is_no_token_and_is_not_repeated() {
    for text in ["", " \n", "secret two", "secret\u{1}auth=x", "secrét"] {
        let error = BearerToken::new(text).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("secr"), "{error}");
    }
    for (name, value) in [("", "v"), ("auth", "v"), ("a1", "v"), ("a", ""), ("a", "x\u{1}y=z"), ("a", "é")] {
        let extension = [(name.to_owned(), value.to_owned())];
        assert!(BearerToken::new("t").unwrap().with_extensions(extension).is_err(), "{name}={value}");
    }
    let token = BearerToken::new("c0rrect-horse").unwrap();
    assert!(!format!("{token:?} {token:#?}").contains("horse"));
}

async fn run(script: &str) -> Result<BearerToken, String> {
    let command = TokenCommand::new("sh", ["-c", script]);
    assert!(!format!("{command:?}").contains(script), "arguments may be secret");
    command.token().await.map_err(|error| chain(&error))
}

#[tokio::test]
async fn a_token_command_gives_what_it_prints_if_it_succeeds() {
    assert_eq!(run("echo abc.def").await, Ok(BearerToken::new("abc.def").unwrap()));
    insta::assert_snapshot!(run("echo half; exit 3").await.unwrap_err(), @"the token command sh failed: exit status: 3");
    insta::assert_snapshot!(run("true").await.unwrap_err(), @"what was given as a token is none: it is empty");
    insta::assert_snapshot!(run("echo two words").await.unwrap_err(), @"what was given as a token is none: it holds a character that no bearer token has");
    insta::assert_snapshot!(run("cat /dev/zero").await.unwrap_err(), @"what was given as a token is none: it is longer than 1 MiB");
    let absent = TokenCommand::new("/no/such/program", [""; 0]).token().await.unwrap_err();
    insta::assert_snapshot!(chain(&absent), @"the token command /no/such/program cannot be run: No such file or directory (os error 2)");
    assert_eq!(absent.recovery(), Recovery::Authenticate);
}

/// Waits until `done`, and no longer than a test may take.
async fn until(mut done: impl FnMut() -> bool) {
    let wait = async {
        while !done() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), wait).await.unwrap();
}

/// True for a process that is no more, or only its parent's to be asked for.
fn has_ended(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
    stat.map_or(true, |stat| stat.contains(") Z "))
}

#[tokio::test]
async fn a_token_command_that_is_given_up_is_ended_with_all_that_it_started() {
    let dir = tempfile::tempdir().unwrap();
    let pids = dir.path().join("pids");
    let script = format!(
        "tail -f /dev/null & echo $$ $! > {0}.new; mv {0}.new {0}; tail -f /dev/null; echo unreached",
        pids.display()
    );
    let command = TokenCommand::new("sh", ["-c".to_owned(), script]);
    let mut token = command.token();
    tokio::select! {
        _ = &mut token => panic!("it does not end by itself"),
        () = until(|| pids.exists()) => {}
    }
    let pids = std::fs::read_to_string(&pids).unwrap();
    let (shell, background) = pids.split_once(' ').unwrap();
    assert!(!has_ended(shell) && !has_ended(background));
    drop(token);
    until(|| has_ended(shell) && has_ended(background)).await;
    // The runtime asks for the end of its own child, so that nothing is left of it.
    until(|| !std::path::Path::new("/proc").join(shell).exists()).await;
}

#[tokio::test]
async fn what_a_token_command_leaves_in_the_background_is_neither_waited_for_nor_ended() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    // It holds our pipe open until somebody writes to its own.
    let script = format!("mkfifo {0} && {{ cat {0} & echo abc.def; }}", fifo.display());
    let token = tokio::time::timeout(std::time::Duration::from_secs(20), run(&script)).await;
    assert_eq!(token.unwrap(), Ok(BearerToken::new("abc.def").unwrap()));
    let options = tokio::net::unix::pipe::OpenOptions::new();
    // Without a reader it cannot be opened.
    until(|| options.open_sender(&fifo).is_ok()).await;
}

#[tokio::test]
async fn a_token_file_is_read_anew_for_each_token() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let tokens = TokenFile::new(file.path());
    for token in ["first", "second"] {
        std::fs::write(file.path(), format!("{token}\n")).unwrap();
        assert_eq!(tokens.token().await.unwrap(), BearerToken::new(token).unwrap());
    }
    insta::assert_snapshot!(chain(&TokenFile::new("/no/such/file").token().await.unwrap_err()), @"the token file /no/such/file cannot be read: No such file or directory (os error 2)");
    insta::assert_snapshot!(chain(&TokenFile::new("/dev/zero").token().await.unwrap_err()), @"what was given as a token is none: it is longer than 1 MiB");
}
