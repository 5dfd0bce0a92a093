//! The line to a server: one client of HTTP for all its requests, and what is seen of each answer.
//!
//! Owns: that no redirect is followed (credentials and keys would go to another host), which certificates are believed, the
//! most bytes of an answer, and how fast an answer comes. Excludes what an answer means (`words`).

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, LengthLimitError, Limited};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody,
    HttpService,
};

use crate::error::{Error, Result};
use platfs_device::units::saturated;

const CONNECT: Duration = Duration::from_secs(10);
/// Longest time for an answer of a cloud's metadata service.
const METADATA: Duration = Duration::from_secs(2);
/// Where machines of clouds ask for their credentials.
const METADATA_HOSTS: [&str; 3] = ["169.254.169.254", "169.254.170.2", "[fd00:ec2::254]"];

/// Most bytes of an answer that holds no object: what a server says of a failure, credentials of a machine.
pub(super) const SMALL: u64 = 1 << 20;

/// Progress of the answer to a request.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// When it was asked for.
    pub(super) asked: Instant,
    /// When something moved last.
    pub(super) moved: Instant,
    /// Bytes that came.
    pub(super) bytes: u64,
    /// The status of the last answer.
    pub(super) status: Option<u16>,
    /// Pause that the server asks for.
    pub(super) after: Option<Duration>,
    /// Where it sends us.
    pub(super) elsewhere: Option<String>,
    /// The region that it names.
    pub(super) region: Option<String>,
    /// The last that was asked is the machine's own metadata: credentials were looked for.
    pub(super) is_metadata: bool,
    /// The most bytes that the answer may have, and whether it had more.
    pub(super) most: u64,
    pub(super) is_too_long: bool,
}

/// An answer that is being watched.
#[derive(Clone, Debug)]
pub(super) struct Watched(Arc<Mutex<Seen>>);

tokio::task_local! {
    /// The answer that the requests of this task are watched for.
    static WATCHED: Watched;
}

impl Watched {
    /// An answer of at most that many bytes.
    pub(super) fn new(most: u64) -> Self {
        Watched(Arc::new(Mutex::new(Seen {
            asked: Instant::now(),
            moved: Instant::now(),
            bytes: 0,
            status: None,
            after: None,
            elsewhere: None,
            region: None,
            is_metadata: false,
            most,
            is_too_long: false,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes come.
    pub(super) fn comes(&self, bytes: usize) {
        let mut seen = self.lock();
        seen.moved = Instant::now();
        seen.bytes = seen.bytes.saturating_add(bytes as u64);
    }

    pub(super) fn seen(&self) -> Seen {
        self.lock().clone()
    }

    /// Has the requests of some work be watched.
    pub(super) fn watching<T>(self, work: impl Future<Output = T>) -> impl Future<Output = T> {
        WATCHED.scope(self, work)
    }

    fn asks(&self, is_metadata: bool) {
        let mut seen = self.lock();
        *seen = Seen { is_metadata, ..Watched::new(seen.most).seen() };
    }

    /// The answer, which ends with a failure where it is too long: the library reads some to their end, whatever they say.
    fn bounded(self, answer: HttpResponse) -> HttpResponse {
        let most = saturated::<usize>(self.lock().most);
        answer.map(|body| {
            let failed = move |error: Box<dyn std::error::Error + Send + Sync>| {
                self.lock().is_too_long |= error.is::<LengthLimitError>();
                let ours = |error| HttpError::new(HttpErrorKind::Interrupted, Failed(error));
                error.downcast::<HttpError>().map_or_else(ours, |theirs| *theirs)
            };
            HttpResponseBody::new(Limited::new(body, most).map_err(failed))
        })
    }

    fn answered(&self, answer: &HttpResponse) {
        let header = |name: &str| answer.headers().get(name)?.to_str().ok().map(str::to_owned);
        let mut seen = self.lock();
        seen.moved = Instant::now();
        seen.status = Some(answer.status().as_u16());
        seen.after = header("retry-after").and_then(|text| text.trim().parse().ok()).map(Duration::from_secs);
        seen.elsewhere = header("location").filter(|_| answer.status().is_redirection());
        seen.region = header("x-amz-bucket-region");
    }
}

/// A client of HTTP as stores are asked with it.
#[derive(Clone, Debug)]
pub(super) struct Line(reqwest::Client);

impl Line {
    /// The client; `authorities` are certificates in PEM that are believed in the place of the system's.
    pub(super) fn new(authorities: Option<&[u8]>) -> Result<Self> {
        // Another part of the program may have chosen one already; that is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("platfs/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT);
        if let Some(pem) = authorities {
            let wrong = |why| Error::Invalid(format!("AWS_CA_BUNDLE: {}", super::words::chain(&why)));
            builder = builder.tls_certs_only(reqwest::Certificate::from_pem_bundle(pem).map_err(wrong)?);
        }
        let wrong = |why| Error::Invalid(format!("preparing connections: {}", super::words::chain(&why)));
        Ok(Line(builder.build().map_err(wrong)?))
    }
}

impl HttpConnector for Line {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

/// A failure in the middle of an answer.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Failed(Box<dyn std::error::Error + Send + Sync>);

/// Nothing came in time.
#[derive(Debug, thiserror::Error)]
#[error("no answer in {} seconds", METADATA.as_secs())]
struct Late;

impl HttpService for Line {
    fn call<'s, 'f>(
        &'s self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = std::result::Result<HttpResponse, HttpError>> + Send + 'f>>
    where
        's: 'f,
        Self: 'f,
    {
        Box::pin(async move {
            let watched = WATCHED.try_with(Clone::clone).ok();
            let is_metadata = request.uri().host().is_some_and(|host| METADATA_HOSTS.contains(&host));
            watched.iter().for_each(|watched| watched.asks(is_metadata));
            let call = self.0.call(request);
            let answer = match is_metadata {
                true => tokio::time::timeout(METADATA, call)
                    .await
                    .unwrap_or_else(|_| Err(HttpError::new(HttpErrorKind::Timeout, Late)))?,
                false => call.await?,
            };
            watched.iter().for_each(|watched| watched.answered(&answer));
            Ok(watched.unwrap_or_else(|| Watched::new(SMALL)).bounded(answer))
        })
    }
}
