//! A small server of S3 for tests, whose answers a script makes wrong. What it keeps lies in memory, or in another server
//! that it stands before as a proxy.
//!
//! Owns: as much of HTTP and S3 as stores are asked for. Excludes what goes wrong when: that is `faults`'.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Keys of one page of a list; few, so that small stores have several.
const PAGE: usize = 7;

/// A request.
#[derive(Clone)]
pub struct Request {
    pub method: String,
    /// The path without the bucket, and what is behind the question mark.
    pub key: String,
    pub query: Vec<(String, String)>,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    head: String,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub fn asks(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub fn is_list(&self) -> bool {
        self.method == "GET" && self.asks("list-type").is_some()
    }

    pub fn is_read(&self) -> bool {
        self.method == "GET" && !self.is_list()
    }

    pub fn is_write(&self) -> bool {
        self.method == "PUT"
    }

    pub fn is_conditional(&self) -> bool {
        self.header("if-none-match").is_some() || self.header("if-match").is_some()
    }
}

/// An answer.
#[derive(Clone, Default)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Answer { status, headers: Vec::new(), body: body.into() }
    }

    pub fn with(mut self, name: &str, value: impl ToString) -> Self {
        self.headers.push((name.to_owned(), value.to_string()));
        self
    }

    /// An error as S3 says it.
    pub fn error(status: u16, code: &str) -> Self {
        let text = format!(
            "<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>as the test says</Message></Error>"
        );
        Answer::new(status, text).with("content-type", "application/xml")
    }
}

/// Fate of an answer on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// It comes as it is.
    Whole,
    /// The connection is reset before it.
    Reset,
    /// Half of its body comes, then the end.
    Half,
    /// It comes in pieces, slowly.
    Slow,
    /// Nothing comes for this many milliseconds, and then the end.
    Silence(u64),
}

/// Reply of a script to a request: an answer in the place of the store's (which is not asked then), or a change of the
/// store's.
pub enum Said {
    Instead(Answer, Way),
    Change(Box<dyn FnOnce(Answer) -> (Answer, Way)>),
}

/// Decides about a request: nothing if it is carried out as it is.
pub type Script = dyn Fn(&Request, &Server) -> Option<Said> + Send + Sync;

struct Kept {
    bytes: Vec<u8>,
    tag: String,
    modified: u64,
}

/// Where objects are.
pub enum Behind {
    Memory,
    Server(String),
}

/// The server.
pub struct Server {
    pub address: SocketAddr,
    behind: Behind,
    objects: Mutex<BTreeMap<String, Kept>>,
    script: Mutex<Option<Arc<Script>>>,
    pub requests: AtomicU64,
    /// Requests that the script has said something to.
    pub spoiled: AtomicU64,
    ended: AtomicBool,
    number: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    pub fn start(behind: Behind) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Arc::new(Server {
            address: listener.local_addr().unwrap(),
            behind,
            objects: Mutex::default(),
            script: Mutex::default(),
            requests: AtomicU64::new(0),
            spoiled: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            number: AtomicU64::new(0),
        });
        let own = Arc::clone(&server);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if own.ended.load(Ordering::Relaxed) {
                    return;
                }
                let own = Arc::clone(&own);
                thread::spawn(move || drop(own.serve(&client)));
            }
        });
        server
    }

    /// Has it accept nobody any more.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(self.address));
    }

    /// Has a script speak for it from now on, or nobody.
    pub fn say(&self, script: Option<Arc<Script>>) {
        *lock(&self.script) = script;
        self.spoiled.store(0, Ordering::Relaxed);
    }

    /// The keys that it has.
    pub fn keys(&self) -> Vec<String> {
        lock(&self.objects).keys().cloned().collect()
    }

    fn made(&self, bytes: &[u8]) -> Kept {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        Kept { bytes: bytes.to_vec(), tag: format!("\"{number:032x}\""), modified: now() }
    }

    fn serve(&self, client: &TcpStream) -> io::Result<()> {
        client.set_nodelay(true)?;
        let mut reader = BufReader::new(client);
        while let Some(request) = read_request(&mut reader)? {
            self.requests.fetch_add(1, Ordering::Relaxed);
            let script = lock(&self.script).clone();
            let said = script.and_then(|script| script(&request, self));
            self.spoiled.fetch_add(u64::from(said.is_some()), Ordering::Relaxed);
            let (answer, way) = match said {
                None => (self.carried_out(&request), Way::Whole),
                Some(Said::Instead(answer, way)) => (answer, way),
                Some(Said::Change(change)) => change(self.carried_out(&request)),
            };
            if !send(client, &answer, way, request.method == "HEAD")? {
                return client.shutdown(Shutdown::Both);
            }
        }
        Ok(())
    }

    fn carried_out(&self, request: &Request) -> Answer {
        match &self.behind {
            Behind::Server(address) => match passed_on(address, request) {
                Ok(answer) => {
                    if answer.status < 300 && matches!(&*request.method, "PUT" | "DELETE" | "POST") {
                        // Its keys are known, for lists that the script makes.
                        let noted = Request { body: noted(request), headers: Vec::new(), ..request.clone() };
                        self.answer_of_memory(&noted);
                    }
                    answer
                }
                Err(error) => Answer::error(502, "BadGateway").with("x-why", error),
            },
            Behind::Memory => self.answer_of_memory(request),
        }
    }

    fn answer_of_memory(&self, request: &Request) -> Answer {
        if request.is_list() {
            return self.listed(request);
        }
        let mut objects = lock(&self.objects);
        match &*request.method {
            "PUT" => {
                let now_there = objects.get(&request.key).map(|kept| kept.tag.clone());
                let expected = request.header("if-match");
                if request.header("if-none-match").is_some() && now_there.is_some()
                    || expected.is_some() && now_there.as_deref() != expected
                {
                    return Answer::error(412, "PreconditionFailed");
                }
                let kept = self.made(&request.body);
                let tag = kept.tag.clone();
                objects.insert(request.key.clone(), kept);
                Answer::new(200, "").with("etag", tag)
            }
            "GET" | "HEAD" => objects
                .get(&request.key)
                .map_or_else(|| Answer::error(404, "NoSuchKey"), |kept| part(kept, request.header("range"))),
            "DELETE" => {
                objects.remove(&request.key);
                Answer::new(204, "")
            }
            "POST" => {
                let text = String::from_utf8_lossy(&request.body).into_owned();
                let mut answer = String::from("<DeleteResult>");
                for piece in text.split("<Key>").skip(1) {
                    let key = piece.split("</Key>").next().unwrap();
                    objects.remove(key);
                    write!(answer, "<Deleted><Key>{key}</Key></Deleted>").unwrap();
                }
                Answer::new(200, answer + "</DeleteResult>")
            }
            _ => Answer::error(405, "MethodNotAllowed"),
        }
    }

    fn listed(&self, request: &Request) -> Answer {
        let (prefix, delimiter) = (request.asks("prefix").unwrap_or(""), request.asks("delimiter"));
        let from = request.asks("continuation-token").unwrap_or("").to_owned();
        let objects = lock(&self.objects);
        let (mut text, mut count, mut next) = (String::new(), 0, None);
        let mut last_common = String::new();
        for (key, kept) in objects.range(from..).filter(|(key, _)| key.starts_with(prefix)) {
            let rest = &key[prefix.len()..];
            let common = delimiter.and_then(|delimiter| Some(&rest[..=rest.find(delimiter)?]));
            if common.is_some_and(|common| common == last_common) {
                continue;
            }
            if count == PAGE {
                next = Some(key.clone());
                break;
            }
            count += 1;
            match common {
                Some(common) => {
                    write!(text, "<CommonPrefixes><Prefix>{prefix}{common}</Prefix></CommonPrefixes>")
                        .unwrap();
                    last_common = common.to_owned();
                }
                None => text.push_str(&entry(key, kept.bytes.len(), &kept.tag, kept.modified)),
            }
        }
        Answer::new(200, page(prefix, &text, next.as_deref())).with("content-type", "application/xml")
    }
}

/// Notes a request that another server has carried out: which keys it removes, and nothing of contents.
fn noted(request: &Request) -> Vec<u8> {
    if request.method == "POST" { request.body.clone() } else { Vec::new() }
}

/// A page of a list.
pub fn page(prefix: &str, entries: &str, next: Option<&str>) -> String {
    let next = next.map(|next| format!("<NextContinuationToken>{next}</NextContinuationToken>"));
    format!(
        "<?xml version=\"1.0\"?><ListBucketResult><Name>bucket</Name><Prefix>{prefix}</Prefix><KeyCount>1</KeyCount>\
         <MaxKeys>{PAGE}</MaxKeys><IsTruncated>{}</IsTruncated>{}{entries}</ListBucketResult>",
        next.is_some(),
        next.unwrap_or_default()
    )
}

/// An object in a list.
pub fn entry(key: &str, size: usize, tag: &str, modified: u64) -> String {
    let time = stamp(modified);
    format!(
        "<Contents><Key>{key}</Key><LastModified>{time}</LastModified><ETag>{}</ETag><Size>{size}</Size>\
         <StorageClass>STANDARD</StorageClass></Contents>",
        tag.replace('"', "&quot;")
    )
}

pub fn now() -> u64 {
    std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs()
}

/// Year, month, day of a time.
fn date(seconds: u64) -> (u64, u64, u64) {
    // The civil calendar, counted in eras of 400 years from a March.
    let days = seconds / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let in_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * in_year + 2) / 153;
    let day = in_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + u64::from(month <= 2), month, day)
}

fn stamp(seconds: u64) -> String {
    let ((year, month, day), rest) = (date(seconds), seconds % 86_400);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.000Z", rest / 3600, rest / 60 % 60, rest % 60)
}

/// A time as headers have it.
fn stamp_of_header(seconds: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let ((year, month, day), rest) = (date(seconds), seconds % 86_400);
    let weekday = DAYS[usize::try_from(seconds / 86_400 % 7).unwrap()];
    let month = MONTHS[usize::try_from(month - 1).unwrap()];
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{weekday}, {day:02} {month} {year} {hour:02}:{minute:02}:{second:02} GMT")
}

/// An object, or a range of it.
fn part(kept: &Kept, range: Option<&str>) -> Answer {
    let size = kept.bytes.len();
    let bounds = range.and_then(|range| {
        let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
        let first: usize = first.parse().ok()?;
        Some((first, last.parse().map_or(size, |last: usize| last + 1).min(size)))
    });
    let answer = match bounds {
        None => Answer::new(200, &kept.bytes[..]),
        Some((first, _)) if first >= size => return Answer::error(416, "InvalidRange"),
        Some((first, end)) => Answer::new(206, &kept.bytes[first..end])
            .with("content-range", format!("bytes {first}-{}/{size}", end - 1)),
    };
    answer.with("etag", &kept.tag).with("last-modified", stamp_of_header(kept.modified))
}

/// Names and values.
type Headers = Vec<(String, String)>;

/// Reads the head of a message: its first line, and the headers.
fn read_head(reader: &mut impl BufRead) -> io::Result<Option<(String, Headers)>> {
    let mut head = String::new();
    loop {
        let before = head.len();
        if reader.read_line(&mut head)? == 0 {
            return Ok(None);
        }
        if head[before..].trim().is_empty() {
            break;
        }
    }
    let headers = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    let headers =
        headers.map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim().to_owned())).collect();
    Ok(Some((head, headers)))
}

fn length(headers: &[(String, String)]) -> usize {
    let found = headers.iter().find(|(name, _)| name == "content-length");
    found.map_or(0, |(_, value)| value.parse().unwrap())
}

fn decoded(text: &str) -> String {
    let (mut out, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, tail @ ..] = rest {
        let code = (*first == b'%')
            .then(|| u8::from_str_radix(std::str::from_utf8(&tail[..2]).unwrap(), 16).unwrap());
        out.push(code.unwrap_or(*first));
        rest = if code.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8(out).unwrap()
}

fn read_request(reader: &mut impl BufRead) -> io::Result<Option<Request>> {
    let Some((head, headers)) = read_head(reader)? else { return Ok(None) };
    let mut body = vec![0; length(&headers)];
    reader.read_exact(&mut body)?;
    let mut words = head.split(' ');
    let (method, target) = (words.next().unwrap().to_owned(), words.next().unwrap());
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let key = path.trim_start_matches('/').split_once('/').map_or("", |(_, key)| key);
    let query = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let query = query.map(|(name, value)| (decoded(name), decoded(value))).collect();
    Ok(Some(Request { method, key: decoded(key), query, headers, body, head }))
}

/// Has the server behind answer.
fn passed_on(address: &str, request: &Request) -> io::Result<Answer> {
    let mut server = TcpStream::connect(address)?;
    server.write_all(request.head.as_bytes())?;
    server.write_all(&request.body)?;
    let mut reader = BufReader::new(&server);
    let gone = || io::Error::other("no answer");
    let (head, headers) = read_head(&mut reader)?.ok_or_else(gone)?;
    let status = head.split(' ').nth(1).and_then(|text| text.parse().ok()).ok_or_else(gone)?;
    let is_chunked = headers.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked");
    let mut body = Vec::new();
    if request.method == "HEAD" {
        // Its length is that of the object.
        return Ok(Answer { status, headers, body });
    }
    if is_chunked {
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let count = u64::from_str_radix(line.trim(), 16).map_err(io::Error::other)?;
            reader.by_ref().take(count).read_to_end(&mut body)?;
            reader.read_line(&mut line)?;
            if count == 0 {
                break;
            }
        }
    } else {
        body = vec![0; length(&headers)];
        reader.read_exact(&mut body)?;
    }
    let kept =
        headers.into_iter().filter(|(name, _)| name != "content-length" && name != "transfer-encoding");
    Ok(Answer { status, headers: kept.collect(), body })
}

/// Sends an answer; whether the connection can go on.
fn send(mut client: &TcpStream, answer: &Answer, way: Way, is_head: bool) -> io::Result<bool> {
    if way == Way::Reset {
        return Ok(false);
    }
    if let Way::Silence(time) = way {
        thread::sleep(Duration::from_millis(time));
        return Ok(false);
    }
    let mut head = format!("HTTP/1.1 {} x\r\n", answer.status);
    answer.headers.iter().for_each(|(name, value)| write!(head, "{name}: {value}\r\n").unwrap());
    if !answer.headers.iter().any(|(name, _)| name == "content-length") {
        write!(head, "content-length: {}\r\n", answer.body.len()).unwrap();
    }
    client.write_all((head + "\r\n").as_bytes())?;
    if is_head || answer.status == 204 {
        return Ok(true);
    }
    match way {
        Way::Half => {
            client.write_all(&answer.body[..answer.body.len() / 2])?;
            return Ok(false);
        }
        Way::Slow => {
            let step = (answer.body.len() / 8).max(1);
            for piece in answer.body.chunks(step) {
                thread::sleep(Duration::from_millis(5));
                client.write_all(piece)?;
            }
        }
        _ => client.write_all(&answer.body)?,
    }
    Ok(true)
}
