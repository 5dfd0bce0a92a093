//! Stores whose answers are wrong, in each way that a network or a server has: what is pushed, pulled, mounted, verified and
//! cleaned up is right, or a clear error comes and nothing is lost.
//!
//! The server is a small one in this process; with `PLATFS_S3` a proxy before the real one.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use testkit::fsck::assert_clean;
use testkit::tool;

use super::server::{Answer, Behind, Request, Said, Script, Server, Way, entry, now, page};
use super::{Place, text};
use crate::support::mounted::have_fuse;
use crate::support::{fail, plat};

/// Outcome that a fault must have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    /// It is waited for, or seen through.
    Passes,
    /// A clear error.
    Fails,
    /// Either: a lie that one command can't know and another can.
    Either,
}
use Outcome::{Either, Fails, Passes};

/// A fault.
struct Fault {
    name: &'static str,
    outcome: Outcome,
    script: Arc<Script>,
    /// Words that the error has, where one is needed.
    words: &'static str,
}

type Matches = fn(&Request) -> bool;

fn all(_: &Request) -> bool {
    true
}

/// Says something to each request that matches, the first `times` times that it comes.
fn first(
    times: usize,
    matches: Matches,
    said: impl Fn(&Request) -> Said + Send + Sync + 'static,
) -> Arc<Script> {
    let seen: Mutex<HashMap<String, usize>> = Mutex::default();
    Arc::new(move |request, _| {
        if !matches(request) {
            return None;
        }
        let name =
            format!("{} {} {:?} {:?}", request.method, request.key, request.query, request.header("range"));
        let mut seen = seen.lock().unwrap();
        let count = seen.entry(name).or_default();
        *count += 1;
        (*count <= times).then(|| said(request))
    })
}

/// Says something to the first requests that match, and to no other.
fn some(
    count: usize,
    matches: Matches,
    said: impl Fn(&Request) -> Said + Send + Sync + 'static,
) -> Arc<Script> {
    let left = AtomicUsize::new(count);
    Arc::new(move |request, _| {
        let take = |left: usize| left.checked_sub(1);
        let is_one =
            matches(request) && left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok();
        is_one.then(|| said(request))
    })
}

/// Says something to each request that matches.
fn always(matches: Matches, said: impl Fn(&Request) -> Said + Send + Sync + 'static) -> Arc<Script> {
    Arc::new(move |request, _| matches(request).then(|| said(request)))
}

fn instead(answer: Answer) -> impl Fn(&Request) -> Said {
    move |_| Said::Instead(answer.clone(), Way::Whole)
}

fn status(status: u16, code: &str) -> impl Fn(&Request) -> Said + use<> {
    instead(Answer::error(status, code))
}

/// The store does what is asked, and this is what comes back.
fn after(answer: Answer) -> impl Fn(&Request) -> Said {
    move |_| {
        let answer = answer.clone();
        Said::Change(Box::new(move |_| (answer, Way::Whole)))
    }
}

/// The store's own answer on another way.
fn by(way: Way) -> impl Fn(&Request) -> Said {
    move |_| Said::Change(Box::new(move |answer| (answer, way)))
}

/// The store's own answer with another body.
fn body(change: fn(&mut Vec<u8>)) -> impl Fn(&Request) -> Said {
    move |_| {
        Said::Change(Box::new(move |mut answer: Answer| {
            change(&mut answer.body);
            (answer, Way::Whole)
        }))
    }
}

fn flipped(bytes: &mut [u8]) {
    let at = bytes.len() / 2;
    bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 4);
}

/// A list in which one kind of lie is.
fn lists(lie: fn(&Request, &Server) -> Option<Said>) -> Arc<Script> {
    Arc::new(move |request, server| request.is_list().then(|| lie(request, server)).flatten())
}

fn listed(text: String) -> Option<Said> {
    Some(Said::Instead(Answer::new(200, text).with("content-type", "application/xml"), Way::Whole))
}

/// All keys below a prefix in one page, as far as they are wanted.
fn in_one_page(request: &Request, server: &Server, wanted: impl Fn(&str) -> bool) -> Option<Said> {
    let prefix = request.asks("prefix").unwrap_or("");
    let keys = server.keys().into_iter().filter(|key| key.starts_with(prefix) && wanted(key));
    let entries: String = keys.map(|key| entry(&key, 100, "\"x\"", now())).collect();
    listed(page(prefix, &entries, None))
}

fn fault(name: &'static str, outcome: Outcome, script: Arc<Script>) -> Fault {
    Fault { name, outcome, script, words: "" }
}

fn refused(name: &'static str, words: &'static str, script: Arc<Script>) -> Fault {
    Fault { name, outcome: Fails, script, words }
}

fn is_manifest(request: &Request) -> bool {
    request.key.ends_with("/manifest")
}

/// Failures that pass.
fn passing() -> Vec<Fault> {
    let busy = |status: u16| Answer::error(status, "SlowDown").with("retry-after", 1);
    let each = |name, said| fault(name, Passes, first(1, all, said));
    let boxed = |status_: u16, code: &str| -> Box<dyn Fn(&Request) -> Said + Send + Sync> {
        Box::new(status(status_, code))
    };
    vec![
        fault("503 with Retry-After", Passes, some(2, is_manifest, instead(busy(503)))),
        fault("429 with Retry-After", Passes, some(2, is_manifest, instead(busy(429)))),
        each("500 before the effect", boxed(500, "InternalError")),
        each("507 before the effect", boxed(507, "InsufficientStorage")),
        each("408", boxed(408, "RequestTimeout")),
        each("400 of a spoiled body", boxed(400, "IncompleteBody")),
        each("a page of a proxy", Box::new(instead(Answer::new(502, "<html>bad gateway</html>")))),
        each("500 after the effect", Box::new(after(Answer::error(500, "InternalError")))),
        each("a reset before the effect", Box::new(|_| Said::Instead(Answer::default(), Way::Reset))),
        each("a reset after the effect", Box::new(by(Way::Reset))),
        each("silence", Box::new(by(Way::Silence(20)))),
        each("answers in small pieces", Box::new(by(Way::Slow))),
        fault("half an answer", Passes, first(1, Request::is_read, by(Way::Half))),
        fault("half of a list", Passes, first(1, Request::is_list, by(Way::Half))),
        fault("a flipped bit", Passes, first(1, Request::is_read, body(|bytes| flipped(bytes)))),
        fault(
            "fewer bytes",
            Passes,
            first(1, Request::is_read, body(|bytes| bytes.truncate(bytes.len() / 2))),
        ),
        fault("more bytes", Passes, first(1, Request::is_read, body(|bytes| bytes.extend([7; 99])))),
        fault(
            "409 while another write is under way",
            Passes,
            first(2, Request::is_conditional, status(409, "ConditionalRequestConflict")),
        ),
        fault(
            "412 without a reason",
            Passes,
            first(1, Request::is_conditional, status(412, "PreconditionFailed")),
        ),
        fault(
            "412 of its own write",
            Passes,
            first(1, Request::is_conditional, after(Answer::error(412, "PreconditionFailed"))),
        ),
        fault("an outage of a second", Passes, outage(Duration::from_secs(1))),
    ]
}

/// Everything is reset until a time after the first request is over.
fn outage(time: Duration) -> Arc<Script> {
    let begun: Mutex<Option<Instant>> = Mutex::default();
    Arc::new(move |_, _| {
        let is_over = begun.lock().unwrap().get_or_insert_with(Instant::now).elapsed() > time;
        (!is_over).then(|| Said::Instead(Answer::default(), Way::Reset))
    })
}

/// Failures that don't pass, and lies.
fn lasting(elsewhere: &str) -> Vec<Fault> {
    let redirect =
        |status: u16, place: &str| always(all, instead(Answer::new(status, "").with("location", place)));
    let region = Answer::error(301, "PermanentRedirect").with("x-amz-bucket-region", "eu-north-7");
    let region = region.with("location", format!("http://{elsewhere}/bucket"));
    let there = Answer::new(200, "").with("etag", "\"x\"").with("content-length", 100);
    let there = there.with("last-modified", "Fri, 02 Jan 2026 03:04:05 GMT");
    vec![
        refused("everything is refused", "403 AccessDenied", always(all, status(403, "AccessDenied"))),
        refused("credentials are not known", "401", always(all, status(401, "Unauthorized"))),
        refused("credentials have expired", "ExpiredToken", always(all, status(400, "ExpiredToken"))),
        refused("there is no bucket", "no such bucket", always(all, status(404, "NoSuchBucket"))),
        refused("a request is wrong", "400 InvalidArgument", always(all, status(400, "InvalidArgument"))),
        refused(
            "a redirect to another host",
            "redirects to",
            redirect(307, &format!("http://{elsewhere}/bucket/x")),
        ),
        refused("a redirect to another region", "eu-north-7", always(all, instead(region))),
        refused(
            "an outage beyond patience",
            "does not answer",
            always(all, |_| Said::Instead(Answer::default(), Way::Reset)),
        ),
        refused("500 for ever", "500 InternalError", always(all, status(500, "InternalError"))),
        fault(
            "a page in the place of objects",
            Either,
            always(Request::is_read, instead(Answer::new(200, "<html>"))),
        ),
        fault("bits flipped for ever", Either, always(Request::is_read, body(|bytes| flipped(bytes)))),
        fault("writes are refused", Either, always(Request::is_write, status(403, "AccessDenied"))),
        fault(
            "HEAD says that nothing is there",
            Either,
            always(|request| request.method == "HEAD", status(404, "")),
        ),
        fault(
            "HEAD says that all is there",
            Either,
            always(|request| request.method == "HEAD", instead(there)),
        ),
        fault("lists are empty", Either, lists(|request, server| in_one_page(request, server, |_| false))),
        fault(
            "lists miss manifests",
            Either,
            lists(|request, server| in_one_page(request, server, |key| !key.ends_with("/manifest"))),
        ),
        fault(
            "lists end with their first page",
            Either,
            lists(|_, _| {
                Some(Said::Change(Box::new(|mut answer: Answer| {
                    let text = String::from_utf8_lossy(&answer.body)
                        .replace("<IsTruncated>true", "<IsTruncated>false");
                    let (front, rest) = text.split_once("<NextContinuationToken>").unwrap_or((&text, ""));
                    let rest = rest.split_once("</NextContinuationToken>").map_or("", |(_, rest)| rest);
                    answer.body = format!("{front}{rest}").into_bytes();
                    (answer, Way::Whole)
                })))
            }),
        ),
        fault(
            "lists have keys of others",
            Either,
            lists(|request, _| {
                let prefix = request.asks("prefix").unwrap_or("").to_owned();
                Some(Said::Change(Box::new(move |mut answer: Answer| {
                    let foreign = ["map/tiles/1.png", "chunk/data/X", "vol//y", "zzz"]
                        .map(|key| entry(&format!("{prefix}{key}"), 5, "\"x\"", 1));
                    let text = String::from_utf8_lossy(&answer.body).into_owned();
                    answer.body = text
                        .replace("</ListBucketResult>", &(foreign.concat() + "</ListBucketResult>"))
                        .into_bytes();
                    (answer, Way::Whole)
                })))
            }),
        ),
        fault(
            "lists pass over the delimiter",
            Either,
            lists(|request, server| in_one_page(request, server, |_| true)),
        ),
    ]
}

/// Where one fault is tried.
struct Trial<'t> {
    fault: &'t Fault,
    server: Arc<Server>,
    url: String,
    image: &'t Path,
    scratch: PathBuf,
}

impl Trial<'_> {
    fn plat(&self, words: &[&str]) -> Command {
        let mut command = plat(words);
        let patience = if self.fault.outcome == Passes { "60s" } else { "1s" };
        command
            .env("AWS_ENDPOINT", format!("http://{}", self.server.address))
            .env("PLAT_STORE_PATIENCE", patience);
        if std::env::var_os("AWS_ACCESS_KEY_ID").is_none() {
            command.env("AWS_ACCESS_KEY_ID", "test").env("AWS_SECRET_ACCESS_KEY", "secret-of-the-test");
        }
        command.env("AWS_REGION", "us-east-1").env("AWS_ALLOW_HTTP", "1").env("PLAT_CACHE", "");
        command.env("HOME", &self.scratch);
        command
    }

    fn volume(&self) -> String {
        format!("{}#one", self.url)
    }

    /// Runs a command with the fault: what comes of it is what should.
    fn spoiled(&self, words: &[&str]) -> bool {
        self.server.say(Some(Arc::clone(&self.fault.script)));
        let done = self.plat(words).output().unwrap();
        let met = self.server.spoiled.load(Ordering::Relaxed) > 0;
        self.server.say(None);
        self.judge(words, &done, met)
    }

    fn judge(&self, words: &[&str], done: &Output, met: bool) -> bool {
        let (name, said) = (self.fault.name, String::from_utf8_lossy(&done.stderr).into_owned());
        let told = format!("{name}: {words:?}: {}: {said}", done.status);
        assert!(matches!(done.status.code(), Some(0 | 1 | 4 | 8)), "{told}");
        assert!(!said.contains("secret-of-the-test") && !said.contains("panicked"), "{told}");
        let is_good = done.status.success();
        assert!(is_good || said.lines().any(|line| line.len() > 20), "{told}");
        match self.fault.outcome {
            Passes => assert!(is_good, "{told}"),
            Fails if met => assert!(!is_good && said.contains(self.fault.words), "{told}"),
            _ => {}
        }
        is_good
    }

    /// Runs a command without the fault, which succeeds.
    fn whole(&self, words: &[&str]) -> Vec<u8> {
        let done = self.plat(words).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success(), "{}: {words:?} afterwards: {said}", self.fault.name);
        done.stdout
    }

    fn pulled_is(&self, wanted: &Path) {
        assert!(
            fs::read(self.scratch.join("back.img")).unwrap() == fs::read(wanted).unwrap(),
            "{}",
            self.fault.name
        );
    }

    fn run(&self) {
        let (one, back) = (self.volume(), self.scratch.join("back.img"));
        let pull = ["pull", "--force", &one, text(&back)];
        self.spoiled(&["push", text(self.image), &one]);
        self.whole(&["push", "--force", text(self.image), &one]);
        if self.fault.name == "HEAD says that all is there" {
            // What was not sent is sent now.
            self.whole(&["push", "--force", text(self.image), &one]);
        }
        self.whole(&pull);
        self.pulled_is(self.image);
        if self.spoiled(&pull) {
            self.pulled_is(self.image);
        }
        self.mounted();
        self.spoiled(&["store", "verify", &self.url]);
        for _ in 0..2 {
            self.spoiled(&["store", "gc", "--grace", "0", &self.url]);
        }
        let said = String::from_utf8(self.whole(&["store", "verify", &self.url])).unwrap();
        assert!(said.contains("all is well"), "{}: {said}", self.fault.name);
        self.whole(&pull);
        assert_clean(&back);
    }

    /// A mount that meets the fault while it is written: what was synced is there afterwards.
    fn mounted(&self) {
        let (one, directory) = (self.volume(), self.scratch.join("m"));
        fs::create_dir(&directory).unwrap();
        self.whole(&["mount", &one, text(&directory)]);
        self.server.say(Some(Arc::clone(&self.fault.script)));
        let write = || -> std::io::Result<()> {
            let mut file = File::create(directory.join("written"))?;
            file.write_all(&[7; 100_000])?;
            file.sync_all()
        };
        let synced = write();
        let done = loop {
            let done = self.plat(&["umount", text(&directory)]).output().unwrap();
            // A child that another trial is starting holds copies of our files for a moment.
            if !String::from_utf8_lossy(&done.stderr).contains("busy") {
                break done;
            }
            thread::sleep(Duration::from_millis(20));
        };
        let met = self.server.spoiled.load(Ordering::Relaxed) > 0;
        self.server.say(None);
        self.judge(&["umount"], &done, met);
        if self.fault.outcome == Passes {
            assert!(synced.is_ok(), "{}: {synced:?}", self.fault.name);
        }
        // What is left of a mount that could not be ended in order.
        drop(Command::new("fusermount3").args(["-uqz"]).arg(&directory).output());
        if synced.is_ok() {
            assert!(self.whole(&["cat", &one, "/written"]) == [7; 100_000], "{}", self.fault.name);
        }
        self.whole(&["check", "-p", &one]);
    }
}

/// Somebody who is asked nothing: a host that a redirect names.
fn nobody() -> (String, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    (listener.local_addr().unwrap().to_string(), listener)
}

fn tried(test: &str, faults: &[Fault]) {
    let place = Place::new(test);
    let (image, next) = (place.image(), AtomicUsize::new(0));
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(fault) = faults.get(number) else { return };
            let scratch = place.scratch.join(format!("{number}"));
            fs::create_dir(&scratch).unwrap();
            let ((behind, url), begun) = (behind(test, number), Instant::now());
            let server = Server::start(behind);
            Trial { fault, server: Arc::clone(&server), url, image: &image, scratch }.run();
            server.end();
            println!("{}: {:.2} s", fault.name, begun.elapsed().as_secs_f64());
        }
    };
    thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(work))));
}

/// The server behind, and the store in it.
fn behind(test: &str, number: usize) -> (Behind, String) {
    match (std::env::var("PLATFS_S3"), std::env::var("AWS_ENDPOINT")) {
        (Ok(base), Ok(endpoint)) => {
            let server = endpoint.trim_start_matches("http://").trim_end_matches('/').to_owned();
            (Behind::Server(server), format!("{base}/{test}-{number}-{}", now()))
        }
        _ => (Behind::Memory, "s3://bucket/test".to_owned()),
    }
}

#[test]
fn what_passes_on_a_bad_line_is_waited_for() {
    let test = "what-passes-on-a-bad-line-is-waited-for";
    if have_fuse(test) {
        tried(test, &passing());
    }
}

#[test]
fn what_does_not_pass_is_said_and_nothing_is_lost() {
    let test = "what-does-not-pass-is-said-and-nothing-is-lost";
    if !have_fuse(test) {
        return;
    }
    let (elsewhere, listener) = nobody();
    tried(test, &lasting(&elsewhere));
    assert!(listener.accept().is_err(), "nobody follows a redirect");
}

/// Keys of a store stand in the environment of each command that uses one.
#[test]
fn nobody_else_of_the_same_user_looks_into_a_command_with_keys_of_a_store() {
    let test = "nobody_else_of_the_same_user_looks_into_a_command_with_keys_of_a_store";
    if !tool::have_root(test) {
        return;
    }
    let place = Place::new(test);
    let server = Server::start(Behind::Memory);
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    // It waits for an answer while it is looked at.
    server.say(Some(Arc::new(move |_, _| {
        count.fetch_add(1, Ordering::SeqCst);
        Some(Said::Change(Box::new(|answer| (answer, Way::Silence(25_000)))))
    })));
    let mut command = plat(&["store", "ls", "s3://bucket/test"]);
    command.env("AWS_ENDPOINT", format!("http://{}", server.address)).env("HOME", place.scratch.path());
    command.envs([("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b"), ("AWS_ALLOW_HTTP", "1")]);
    command.env("PLAT_CACHE", "").env("PLAT_STORE_PATIENCE", "0").stderr(Stdio::null());
    let mut child = command.uid(65534).gid(65534).stdout(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    while asked.load(Ordering::SeqCst) == 0 {
        assert!(begun.elapsed() < Duration::from_secs(60), "it asks for nothing");
        thread::sleep(Duration::from_millis(5));
    }
    let opens = |process: u32, name: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("exec 3< /proc/{process}/{name}")]).stderr(Stdio::null());
        shell.uid(65534).gid(65534).status().unwrap().success()
    };
    let seen = ["mem", "environ"].map(|name| opens(child.id(), name));
    assert!(child.try_wait().unwrap().is_none(), "it ended before it was looked into");
    child.kill().unwrap();
    child.wait().unwrap();
    let mut other = Command::new("sleep").arg("60").uid(65534).gid(65534).spawn().unwrap();
    assert!(opens(other.id(), "environ"), "this test sees what can be seen");
    other.kill().unwrap();
    other.wait().unwrap();
    assert_eq!(seen, [false; 2]);

    let refused = fail(&mut plat(&["store", "ls", "s3://KEY:HIDDEN@bucket/test"]));
    assert!(refused.contains("has credentials in it") && !refused.contains("HIDDEN"), "{refused}");
    let refused = fail(&mut plat(&["store", "ls", "s3://KEY:HID/DEN@bucket/test"]));
    assert!(refused.contains("has credentials in it"), "{refused}");
    assert!(!refused.contains("HID") && !refused.contains("DEN"), "{refused}");
}

/// A store that is not there at all: each reason is named.
#[test]
fn a_store_that_can_not_be_reached_is_named_with_the_reason() {
    let place = Place::new("a_store_that_can_not_be_reached_is_named_with_the_reason");
    let server = Server::start(Behind::Memory);
    let closed = nobody().0;
    let why = |endpoint: &str, set: &[(&str, &str)]| {
        let mut command = plat(&["store", "ls", "s3://bucket/test"]);
        for name in
            ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_ALLOW_HTTP", "AWS_REGION"]
        {
            command.env_remove(name);
        }
        command
            .env("HOME", place.scratch.path())
            .env("AWS_ENDPOINT", endpoint)
            .env("PLAT_STORE_PATIENCE", "0");
        command.envs(set.iter().copied()).env("AWS_EC2_METADATA_DISABLED", "true");
        let done = command.output().unwrap();
        (done.status.success(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    let keys = [("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b"), ("AWS_ALLOW_HTTP", "1")];
    let plain = format!("http://{}", server.address);
    for (endpoint, words) in [
        (format!("http://{closed}"), "refused"),
        (format!("https://{}", server.address), "tls"),
        ("http://nowhere.invalid".to_owned(), "dns"),
    ] {
        let (is_good, said) = why(&endpoint, &keys);
        assert!(!is_good && said.to_lowercase().contains(words), "{endpoint}: {said}");
    }
    assert!(why(&plain, &keys[..2]).1.contains("AWS_ALLOW_HTTP=true"));
    assert!(why(&plain, &keys[2..]).1.contains("no credentials"));
    let directory = place.scratch.join(".aws");
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("credentials"), "[work]\naws_access_key_id = a\naws_secret_access_key = b\n")
        .unwrap();
    let with_profile = [keys[2], ("AWS_PROFILE", "work")];
    let said = why(&plain, &with_profile).1;
    assert!(said.contains("nothing was pushed there"), "it was reached: {said}");
    assert!(why(&plain, &[keys[2], ("AWS_PROFILE", "none")]).1.contains("no such profile"));
    server.end();
}

/// `openssl` as a server that anybody may reach by TLS, with a certificate that no authority of the system has signed.
struct Secured(std::process::Child);

impl Secured {
    fn start(place: &Place, address: &str) -> Self {
        let (key, certificate) = (place.scratch.join("key.pem"), place.scratch.join("certificate.pem"));
        let mut made = tool::command("openssl");
        made.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]);
        made.args([
            "-addext",
            "subjectAltName=DNS:localhost",
            "-addext",
            "basicConstraints=critical,CA:FALSE",
        ]);
        tool::run(made.arg("-keyout").arg(&key).arg("-out").arg(&certificate));
        let mut served = tool::command("openssl");
        served.args(["s_server", "-quiet", "-www", "-accept", address]);
        served.arg("-key").arg(key).arg("-cert").arg(certificate);
        served.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut server = Secured(served.spawn().unwrap());
        while std::net::TcpStream::connect(address).is_err() {
            assert!(server.0.try_wait().unwrap().is_none(), "openssl does not serve");
            thread::sleep(Duration::from_millis(20));
        }
        server
    }
}

impl Drop for Secured {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `AWS_CA_BUNDLE`, also in a profile, says which certificates are believed; one that is not is named as the cause.
#[test]
fn certificates_of_a_bundle_are_believed() {
    let test = "certificates_of_a_bundle_are_believed";
    if !tool::have_tools(test, &["openssl"]) {
        return;
    }
    // Messages name paths, and this test looks for a word in them.
    let place = Place::new("bundle");
    let (address, listener) = nobody();
    drop(listener);
    let _server = Secured::start(&place, &address);
    let port = address.rsplit(':').next().unwrap();
    let ask = |bundle: Option<&Path>, home: &Path| {
        let mut command = plat(&["store", "ls", "s3://bucket/test"]);
        command.env_remove("AWS_PROFILE").env_remove("AWS_CA_BUNDLE").env("HOME", home);
        command.envs([
            ("AWS_ACCESS_KEY_ID", "a"),
            ("AWS_SECRET_ACCESS_KEY", "b"),
            ("AWS_REGION", "us-east-1"),
        ]);
        command.env("AWS_ENDPOINT", format!("https://localhost:{port}")).env("PLAT_STORE_PATIENCE", "0");
        bundle.map(|bundle| command.env("AWS_CA_BUNDLE", bundle));
        fail(&mut command)
    };
    let (bundle, nowhere) = (place.scratch.join("certificate.pem"), place.scratch.join("nowhere"));
    let unknown = ask(None, &nowhere);
    assert!(unknown.contains("certificate"), "{unknown}");
    // What it says is no answer of a store; but it was heard.
    let known = ask(Some(&bundle), &nowhere);
    assert!(!known.contains("certificate"), "{known}");
    for wrong in [&nowhere, place.scratch.path()] {
        let named = ask(Some(wrong), &nowhere);
        assert!(named.contains("AWS_CA_BUNDLE") && named.contains(text(wrong)), "{named}");
    }
    let directory = place.scratch.join(".aws");
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("config"), format!("[default]\nca_bundle = {}\n", text(&bundle))).unwrap();
    let of_profile = ask(None, place.scratch.path());
    assert!(!of_profile.contains("certificate"), "{of_profile}");
}
