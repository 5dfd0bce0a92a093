//! S3, Google Cloud Storage and Azure, through the crate `object_store`.
//!
//! | module | owns |
//! | --- | --- |
//! | `line` | the client of HTTP, and what is seen of an answer |
//! | `settings` | how a store of S3 is reached: the environment and the files in `~/.aws` |
//! | `words` | what a failure means and how it is said |
//!
//! Owns: the asynchronous runtime, which nobody else sees. Each request runs on a thread of the runtime, and is waited for
//! as long as it moves, and not more slowly than any line does. Excludes retries: those are `patient`'s, which knows what
//! a second try means.

mod line;
#[cfg(feature = "s3")]
mod settings;
mod words;

use std::future::Future;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use futures_util::StreamExt;
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::Path;
use object_store::{
    GetResult, ListResult, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload,
    RetryConfig, UpdateVersion,
};
use tokio::runtime::Runtime;

use super::{Listed, NAMES_MAX, Object, Objects, Version, checked, endless};
use crate::error::{Error, Result};
use line::{Line, SMALL, Seen, Watched};
use words::object_error;

/// Longest time for which nothing of a request may move.
const STILL: Duration = Duration::from_secs(30);
/// Bytes in a second that a line carries at least. What is handed to the system is not seen to move: writes are given the
/// time that all that are under way would take together, and reads the time that their share of the line takes.
const SLOWEST: u64 = 32 << 10;
/// Time between two looks at the progress of a request.
const LOOK: Duration = Duration::from_millis(500);
/// Most bytes of a page of a list: a thousand keys (of Azure five thousand) with what stands around them.
const PAGE: u64 = 16 << 20;
/// Most pages in a row that name nothing.
const IDLE: u32 = 4096;
/// Threads that speak with the store; what they do is waiting.
const THREADS: usize = 2;

/// A store whose lists come in pages.
trait Paged: ObjectStore + PaginatedListStore {}

impl<T: ObjectStore + PaginatedListStore> Paged for T {}

/// A store that is reached over the network. Its credentials come from the environment, as its other programs have them.
pub struct Remote {
    inner: Arc<dyn Paged>,
    prefix: String,
    runtime: Runtime,
    /// Bytes of writes that are under way.
    leaving: AtomicU64,
    /// Requests that are under way.
    under_way: AtomicU64,
    still: Duration,
}

/// Time limits of a request that shares its line with the most others.
struct Share {
    still: Duration,
    /// The time that all writes take.
    leaving: Duration,
    most: u64,
}

impl Share {
    /// Returns the reason for which a request is given up, if it is: nothing came for too long, or less than a line carries.
    fn lost(&self, seen: &Seen) -> Option<String> {
        let (still, all) = (seen.moved.elapsed(), seen.asked.elapsed());
        let least = self.still + self.leaving;
        if still >= least {
            return Some(format!("nothing came for {} seconds", still.as_secs()));
        }
        let share =
            Duration::from_millis(seen.bytes.saturating_mul(self.most).saturating_mul(1000) / SLOWEST);
        let words =
            || format!("the line is too slow: {} bytes came in {} seconds", seen.bytes, all.as_secs());
        (all >= least + share).then(words)
    }
}

/// The parts of `scheme://bucket/prefix`: scheme, bucket, and the prefix with a slash behind it.
fn parts(url: &str) -> Option<(&str, &str, String)> {
    let (scheme, rest) = url.split_once("://")?;
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let prefix = prefix.trim_matches('/');
    let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
    (!bucket.is_empty()).then_some((scheme, bucket, prefix))
}

impl Remote {
    /// Files that settings name in files, and that are read to reach a store.
    #[must_use]
    pub fn named_files() -> Vec<PathBuf> {
        settings::bundle().map(PathBuf::from).into_iter().collect()
    }

    /// The store of an address. Nothing is asked of it yet.
    ///
    /// # Errors
    /// No bucket, a kind of store that this build does not know, settings that can't be understood.
    pub fn open(url: &str) -> Result<Self> {
        let bad =
            || Error::Invalid(format!("{url}: the address of a store is s3://BUCKET/PREFIX, gs:// or az://"));
        let (scheme, bucket, prefix) = parts(url).ok_or_else(bad)?;
        Self::over(built(scheme, bucket)?, prefix, STILL)
    }

    fn over(inner: Arc<dyn Paged>, prefix: String, still: Duration) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("store")
            .enable_all()
            .build()
            .map_err(|why| Error::host("starting threads for the store", &why))?;
        let (leaving, under_way) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Remote { inner, prefix, runtime, leaving, under_way, still })
    }

    fn path(&self, key: &str) -> Result<Path> {
        let full = format!("{}{}", self.prefix, checked(key)?);
        Path::parse(full.trim_end_matches('/')).map_err(|why| Error::Invalid(why.to_string()))
    }

    /// Has a thread of the runtime do something that is answered by at most that many bytes, and waits for it as long as it
    /// moves.
    fn wait<T: Send + 'static, W>(&self, key: &str, most: u64, work: impl FnOnce(Watched) -> W) -> Result<T>
    where
        W: Future<Output = object_store::Result<T>> + Send + 'static,
    {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        let done = self.waited(key, most, work);
        self.under_way.fetch_sub(1, Ordering::Relaxed);
        done
    }

    fn waited<T: Send + 'static, W>(&self, key: &str, most: u64, work: impl FnOnce(Watched) -> W) -> Result<T>
    where
        W: Future<Output = object_store::Result<T>> + Send + 'static,
    {
        let (done, result) = sync_channel(1);
        let watched = Watched::new(most);
        let work = watched.clone().watching(work(watched.clone()));
        let task = self.runtime.spawn(async move {
            // Nobody waits any more: what was done is not known to have been.
            let _ = done.send(work.await);
        });
        let mut share = Share { still: self.still, leaving: Duration::ZERO, most: 1 };
        loop {
            match result.recv_timeout(LOOK.min(self.still)) {
                Ok(result) => return result.map_err(|error| object_error(key, &error, &watched.seen())),
                Err(RecvTimeoutError::Timeout) => {
                    share.leaving = Duration::from_secs(self.leaving.load(Ordering::Relaxed) / SLOWEST);
                    share.most = share.most.max(self.under_way.load(Ordering::Relaxed));
                    if let Some(why) = share.lost(&watched.seen()) {
                        task.abort();
                        return Err(Error::Unavailable(format!("{key}: {why}")));
                    }
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::Unavailable(format!("{key}: the request ended")));
                }
            }
        }
    }

    fn written(&self, key: &str, bytes: &[u8], mode: PutMode) -> Result<Version> {
        let (inner, path) = (Arc::clone(&self.inner), self.path(key)?);
        let payload = PutPayload::from(bytes.to_vec());
        let options = PutOptions { mode, ..PutOptions::default() };
        self.leaving.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let done = self.wait(key, SMALL, |_| async move { inner.put_opts(&path, payload, options).await });
        self.leaving.fetch_sub(bytes.len() as u64, Ordering::Relaxed);
        let done = done?;
        Ok(Version { tag: done.e_tag, number: done.version })
    }

    /// Asks for the pages of a list, one after the other.
    fn pages(
        &self,
        prefix: &str,
        delimiter: Option<&'static str>,
        mut each: impl FnMut(ListResult) -> Result<()>,
    ) -> Result<()> {
        let full = format!("{}{}", self.prefix, checked(prefix)?);
        let (mut token, mut idle) = (None, 0);
        loop {
            let (inner, full) = (Arc::clone(&self.inner), full.clone());
            let options = PaginatedListOptions {
                delimiter: delimiter.map(Into::into),
                page_token: token.clone(),
                ..PaginatedListOptions::default()
            };
            let work = |_| async move { inner.list_paginated(Some(&full), options).await };
            let page = self.wait(prefix, PAGE, work)?;
            let is_idle = page.result.objects.is_empty() && page.result.common_prefixes.is_empty();
            idle = if is_idle { idle + 1 } else { 0 };
            each(page.result)?;
            match page.page_token {
                None => return Ok(()),
                next if next == token || idle > IDLE => {
                    return Err(Error::Invalid(format!("{prefix}: the store's list comes to no end")));
                }
                next => token = next,
            }
        }
    }

    /// Turns an answer into an object's entry, without the prefix of the store.
    fn listed(&self, meta: &ObjectMeta) -> Option<Listed> {
        let key = meta.location.as_ref().strip_prefix(&self.prefix)?.to_owned();
        Some(Listed { key, size: meta.size, modified: meta.last_modified.into() })
    }
}

fn built(scheme: &str, bucket: &str) -> Result<Arc<dyn Paged>> {
    let wrong =
        |why: object_store::Error| Error::Invalid(format!("{scheme}://{bucket}: {}", words::chain(&why)));
    let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
    match scheme {
        #[cfg(feature = "s3")]
        "s3" => {
            let line = Line::new(settings::authorities()?.as_deref())?;
            let builder = settings::s3()?.with_bucket_name(bucket).with_http_connector(line);
            Ok(Arc::new(builder.with_retry(retry).build().map_err(wrong)?))
        }
        #[cfg(feature = "gs")]
        "gs" => {
            let builder = object_store::gcp::GoogleCloudStorageBuilder::from_env().with_bucket_name(bucket);
            let builder = builder.with_http_connector(Line::new(None)?);
            Ok(Arc::new(builder.with_retry(retry).build().map_err(wrong)?))
        }
        #[cfg(feature = "az")]
        "az" => {
            let builder = object_store::azure::MicrosoftAzureBuilder::from_env().with_container_name(bucket);
            let builder = builder.with_http_connector(Line::new(None)?);
            Ok(Arc::new(builder.with_retry(retry).build().map_err(wrong)?))
        }
        other => Err(Error::Invalid(format!("this build knows no stores of the kind `{other}`"))),
    }
}

/// The bytes of an answer, and no more than that.
async fn collected(
    answer: GetResult,
    most: u64,
    watched: Watched,
) -> object_store::Result<(Option<Vec<u8>>, Version)> {
    let version = Version { tag: answer.meta.e_tag.clone(), number: answer.meta.version.clone() };
    let mut bytes = Vec::new();
    let mut stream = answer.into_stream();
    while let Some(piece) = stream.next().await {
        let piece = piece?;
        watched.comes(piece.len());
        if bytes.len() as u64 + piece.len() as u64 > most {
            return Ok((None, version));
        }
        bytes.extend_from_slice(&piece);
    }
    Ok((Some(bytes), version))
}

impl Objects for Remote {
    fn get(&self, key: &str, most: u64) -> Result<Object> {
        let (inner, path) = (Arc::clone(&self.inner), self.path(key)?);
        let work = |watched| async move { collected(inner.get(&path).await?, most, watched).await };
        // One byte more shows that it is too long; and a failure has words.
        let (bytes, version) = self.wait(key, most.saturating_add(1).max(SMALL), work)?;
        let bytes = bytes.ok_or_else(|| Error::damaged(key, format!("has more than {most} bytes")))?;
        Ok(Object { bytes, version })
    }

    fn range(&self, key: &str, offset: u64, len: u64) -> Result<Vec<u8>> {
        let (inner, path) = (Arc::clone(&self.inner), self.path(key)?);
        let range: Range<u64> = offset..offset.saturating_add(len);
        let options = object_store::GetOptions { range: Some(range.into()), ..Default::default() };
        let work =
            |watched| async move { collected(inner.get_opts(&path, options).await?, len, watched).await };
        let (bytes, _) = self.wait(key, len.saturating_add(1).max(SMALL), work)?;
        // That is no range of the object, whatever the object is.
        bytes.ok_or_else(|| Error::Unavailable(format!("{key}: more bytes come than were asked for")))
    }

    fn put(&self, key: &str, bytes: &[u8]) -> Result<()> {
        self.written(key, bytes, PutMode::Overwrite).map(drop)
    }

    fn create(&self, key: &str, bytes: &[u8]) -> Result<Version> {
        match self.written(key, bytes, PutMode::Create) {
            Err(Error::Conflict(key)) => Err(Error::Exists(key)),
            done => done,
        }
    }

    fn replace(&self, key: &str, bytes: &[u8], version: &Version) -> Result<Version> {
        let version = UpdateVersion { e_tag: version.tag.clone(), version: version.number.clone() };
        match self.written(key, bytes, PutMode::Update(version)) {
            Err(Error::Exists(key) | Error::Missing(key)) => Err(Error::Conflict(key)),
            done => done,
        }
    }

    fn head(&self, key: &str) -> Result<Option<Listed>> {
        let (inner, path) = (Arc::clone(&self.inner), self.path(key)?);
        match self.wait(key, SMALL, |_| async move { inner.head(&path).await }) {
            Ok(meta) => Ok(self.listed(&meta)),
            Err(Error::Missing(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed) -> Result<()>) -> Result<()> {
        self.pages(prefix, None, |page| {
            page.objects.iter().filter_map(|meta| self.listed(meta)).try_for_each(&mut *each)
        })
    }

    fn names(&self, prefix: &str) -> Result<Vec<String>> {
        let mut names = Vec::new();
        self.pages(prefix, Some("/"), |page| {
            names.extend(page.common_prefixes.iter().filter_map(|path| path.filename().map(str::to_owned)));
            if names.len() > NAMES_MAX { Err(endless(prefix, NAMES_MAX)) } else { Ok(()) }
        })?;
        Ok(names)
    }

    fn remove(&self, key: &str) -> Result<()> {
        let (inner, path) = (Arc::clone(&self.inner), self.path(key)?);
        match self.wait(key, SMALL, |_| async move { inner.delete(&path).await }) {
            Err(Error::Missing(_)) => Ok(()),
            done => done,
        }
    }
}

#[cfg(test)]
#[cfg(feature = "s3")]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    /// A server that sends one answer of 200,000 bytes, in pieces with a pause behind each.
    fn sending(piece: usize, pause: Duration) -> Remote {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            let _ = client.read(&mut [0; 4096]).unwrap();
            let head = "HTTP/1.1 200 x\r\netag: \"x\"\r\nlast-modified: Fri, 02 Jan 2026 03:04:05 GMT\r\ncontent-length: \
                        200000\r\n\r\n";
            client.write_all(head.as_bytes()).unwrap();
            // Whoever waits to the end of a line that trickles waits for half a minute.
            let mut pieces = vec![7; 200_000];
            for piece in pieces.chunks_mut(piece) {
                std::thread::sleep(pause);
                if client.write_all(piece).is_err() {
                    return;
                }
            }
        });
        at(address)
    }

    fn at(address: std::net::SocketAddr) -> Remote {
        let builder =
            object_store::aws::AmazonS3Builder::new().with_bucket_name("bucket").with_allow_http(true);
        let builder = builder.with_endpoint(format!("http://{address}")).with_region("here");
        let builder = builder.with_access_key_id("a").with_secret_access_key("b");
        let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
        let inner = builder.with_http_connector(Line::new(None).unwrap()).with_retry(retry).build().unwrap();
        Remote::over(Arc::new(inner), String::new(), Duration::from_secs(2)).unwrap()
    }

    #[test]
    fn a_line_that_trickles_is_given_up_though_it_never_stands_still() {
        let error = sending(700, Duration::from_millis(100)).get("chunk/x", 1 << 20).unwrap_err();
        assert!(
            matches!(&error, Error::Unavailable(why) if why.contains("chunk/x: the line is too slow")),
            "{error}"
        );
        // All of an answer may take longer than nothing may move.
        let object = sending(40_000, Duration::from_millis(700)).get("chunk/x", 1 << 20).unwrap();
        assert_eq!(object.bytes, vec![7; 200_000]);
    }

    /// A server that says the same to each request, and more of it as long as that is taken.
    fn saying(head: &'static str, more: bool) -> Remote {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            while let Ok((mut client, _)) = listener.accept() {
                let _ = client.read(&mut [0; 4096]);
                let _ = client.write_all(format!("HTTP/1.1 200 x\r\nconnection: close\r\n{head}").as_bytes());
                while more && client.write_all(&[b' '; 1 << 16]).is_ok() {}
            }
        });
        at(address)
    }

    #[test]
    fn lists_that_come_to_no_end_are_refused() {
        let page = "\r\n<?xml version=\"1.0\"?><ListBucketResult><IsTruncated>true</IsTruncated>\
                    <NextContinuationToken>again</NextContinuationToken></ListBucketResult>";
        let said = saying(page, false).names("vol/").unwrap_err().to_string();
        assert!(said.contains("vol/") && said.contains("comes to no end"), "{said}");
        let said =
            saying("\r\n<?xml version=\"1.0\"?><ListBucketResult>", true).list("vol/", &mut |_| Ok(()));
        let said = said.unwrap_err().to_string();
        assert!(said.contains("vol/") && said.contains(&format!("more than {PAGE} bytes")), "{said}");
        let head = "etag: \"x\"\r\nlast-modified: Fri, 02 Jan 2026 03:04:05 GMT\r\ncontent-length: 99999999999\r\n\r\n";
        let said = saying(head, true).get("chunk/x", 1000).unwrap_err().to_string();
        assert!(said.contains("more than 1000 bytes"), "{said}");
    }

    #[test]
    fn a_request_has_its_share_of_the_line() {
        let ago = |seconds| std::time::Instant::now().checked_sub(Duration::from_secs(seconds)).unwrap();
        let seen = |bytes, asked| Seen { bytes, asked: ago(asked), moved: ago(1), ..Watched::new(0).seen() };
        let share = |most| Share { still: STILL, leaving: Duration::ZERO, most };
        assert!(share(1).lost(&seen(SLOWEST, 29)).is_none() && share(1).lost(&seen(SLOWEST, 40)).is_some());
        assert!(share(1).lost(&seen(20 * SLOWEST, 40)).is_none());
        assert!(share(32).lost(&seen(SLOWEST, 40)).is_none() && share(32).lost(&seen(SLOWEST, 70)).is_some());
        let writes = Share { leaving: Duration::from_secs(100), ..share(1) };
        assert!(writes.lost(&seen(0, 120)).is_none() && writes.lost(&seen(0, 140)).is_some());
    }
}
