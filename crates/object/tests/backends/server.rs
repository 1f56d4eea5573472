//! A small S3 server in this process that misbehaves as it is told to.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write as _,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use parking_lot::Mutex;

pub const BUCKET: &str = "bucket";

/// What a request gets.
#[derive(Clone, Debug)]
pub enum Reply {
    /// What it asked for.
    Serve,
    /// An error of this status and code.
    Error(u16, &'static str),
    /// The connection ends before anything is done.
    Reset,
    /// What it asked for is done, then the connection ends.
    ServeThenReset,
    /// Somebody else's object is stored in its place, then the connection ends.
    StoreOtherThenReset(&'static [u8]),
    /// The connection ends in the middle of the body.
    CutBody,
    /// No answer until the client gives up.
    Hang,
    /// Half of the body, then nothing until the client gives up.
    Stall,
    /// An error of this status and body, with these headers.
    Refuse(u16, &'static str, &'static [(&'static str, &'static str)]),
    /// What it asked for, announced as so many bytes more than it is.
    Announce(i64),
    /// Nothing is done, and the answer says that all is well, with an error in its body.
    WellWithError,
}

#[derive(Clone, Debug, Default)]
pub struct Request {
    pub method: String,
    /// Without the bucket.
    pub key: String,
    pub query: HashMap<String, String>,
    pub headers: HashMap<String, String>,
    pub body: Vec<u8>,
}

impl Request {
    /// The id of the key that signed it.
    pub fn signed_by(&self) -> &str {
        let header = self.headers.get("authorization").map_or("", String::as_str);
        header.split_once("Credential=").map_or("", |(_, rest)| rest.split('/').next().unwrap_or(""))
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Quirks {
    pub ignores_if_none_match: bool,
    pub ignores_if_match: bool,
    pub ignores_range: bool,
    pub drops_metadata: bool,
    pub keeps_versions: bool,
    /// Speaks as Google Cloud Storage does: generations instead of tags in conditions.
    pub google: bool,
}

#[derive(Clone, Debug)]
struct Object {
    body: Vec<u8>,
    etag: String,
    metadata: Vec<(String, String)>,
}

type Rule = Box<dyn FnMut(&Request) -> Reply + Send>;

struct Shared {
    quirks: Quirks,
    objects: Mutex<(BTreeMap<String, Object>, u64)>,
    rule: Mutex<Rule>,
    log: Mutex<Vec<String>>,
    closing: AtomicBool,
}

pub struct Server {
    shared: Arc<Shared>,
    port: u16,
    acceptor: Option<thread::JoinHandle<()>>,
}

impl Server {
    /// `rule` decides each request in the order of their arrival.
    pub fn start(quirks: Quirks, rule: impl FnMut(&Request) -> Reply + Send + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            quirks,
            objects: Mutex::default(),
            rule: Mutex::new(Box::new(rule)),
            log: Mutex::default(),
            closing: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        let acceptor = thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if accepting.closing.load(Ordering::SeqCst) {
                    return;
                }
                let shared = Arc::clone(&accepting);
                thread::spawn(move || shared.serve(&stream));
            }
        });
        Server { shared, port, acceptor: Some(acceptor) }
    }

    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The requests so far, as `METHOD key`.
    pub fn log(&self) -> Vec<String> {
        self.shared.log.lock().clone()
    }

    pub fn keys(&self) -> Vec<String> {
        self.shared.objects.lock().0.keys().cloned().collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::SeqCst);
        let _wakes_the_acceptor = TcpStream::connect(("127.0.0.1", self.port));
        if let Some(acceptor) = self.acceptor.take() {
            let _ended = acceptor.join();
        }
    }
}

struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Answer {
    fn new(status: u16) -> Answer {
        Answer { status, headers: Vec::new(), body: Vec::new() }
    }

    fn error(status: u16, code: &str) -> Answer {
        let body =
            format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>as told</Message></Error>");
        Answer { body: body.into_bytes(), ..Answer::new(status) }
    }

    fn header(mut self, name: &str, value: impl ToString) -> Answer {
        self.headers.push((name.into(), value.to_string()));
        self
    }
}

impl Shared {
    fn serve(&self, stream: &TcpStream) {
        let mut reader = BufReader::new(stream);
        while let Some(request) = read_request(&mut reader) {
            self.log.lock().push(format!("{} {}", request.method, request.key));
            let reply = (self.rule.lock())(&request);
            let head = request.method == "HEAD";
            let kept = match reply {
                Reply::Serve => send(stream, &self.answer(&request), head, false),
                Reply::Error(status, code) => send(stream, &Answer::error(status, code), head, false),
                Reply::CutBody => send(stream, &self.answer(&request), head, true),
                Reply::Reset => false,
                Reply::ServeThenReset => {
                    self.answer(&request);
                    false
                }
                Reply::StoreOtherThenReset(body) => {
                    let other = Request { body: body.to_vec(), headers: HashMap::new(), ..request };
                    self.answer(&other);
                    false
                }
                Reply::Stall => {
                    send(stream, &self.answer(&request), head, true);
                    let _until_the_client_leaves = reader.read(&mut [0]);
                    false
                }
                Reply::Refuse(status, body, headers) => {
                    let mut answer = Answer { body: body.into(), ..Answer::new(status) };
                    answer.headers =
                        headers.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
                    send(stream, &answer, head, false)
                }
                Reply::Announce(more) => {
                    let answer = self.answer(&request);
                    let length = answer.body.len().checked_add_signed(more.try_into().unwrap()).unwrap();
                    send_as(stream, &answer, length, head, false);
                    false
                }
                Reply::WellWithError => {
                    let body = "<?xml version=\"1.0\"?><Error><Code>InternalError</Code></Error>";
                    send(stream, &Answer { body: body.into(), ..Answer::new(200) }, head, false)
                }
                Reply::Hang => {
                    let _until_the_client_leaves = reader.read(&mut [0]);
                    false
                }
            };
            if !kept {
                return;
            }
        }
    }

    fn answer(&self, request: &Request) -> Answer {
        match request.method.as_str() {
            "PUT" => self.put(request),
            "GET" if request.key.is_empty() => self.list(request),
            "GET" | "HEAD" => self.get(request),
            "DELETE" => {
                self.objects.lock().0.remove(&request.key);
                Answer::new(204)
            }
            _ => Answer::error(405, "MethodNotAllowed"),
        }
    }

    fn put(&self, request: &Request) -> Answer {
        let (objects, versions) = &mut *self.objects.lock();
        let there = objects.get(&request.key);
        if request.headers.contains_key("if-none-match")
            && there.is_some()
            && !self.quirks.ignores_if_none_match
        {
            return Answer::error(412, "PreconditionFailed");
        }
        let generation = request.headers.get("x-goog-if-generation-match").filter(|_| self.quirks.google);
        let found = there.map_or("0", |there| there.etag.trim_matches(['"', 'v']));
        if generation.is_some_and(|wanted| wanted != found) {
            return Answer::error(412, "PreconditionFailed");
        }
        let wanted = request.headers.get("if-match").filter(|_| !self.quirks.ignores_if_match);
        match (wanted, there) {
            (Some(_), None) => return Answer::error(404, "NoSuchKey"),
            (Some(wanted), Some(there)) if *wanted != there.etag => {
                return Answer::error(412, "PreconditionFailed");
            }
            _ => {}
        }
        *versions += 1;
        let etag = format!("\"v{versions}\"");
        let metadata = request
            .headers
            .iter()
            .filter(|(name, _)| name.starts_with("x-amz-meta-") || name.starts_with("x-goog-meta-"));
        let metadata = metadata.filter(|_| !self.quirks.drops_metadata);
        let metadata = metadata.map(|(name, value)| (name.clone(), value.clone())).collect();
        objects
            .insert(request.key.clone(), Object { body: request.body.clone(), etag: etag.clone(), metadata });
        let answer = Answer::new(200).header("ETag", etag);
        match self.quirks {
            Quirks { keeps_versions: true, .. } => answer.header("x-amz-version-id", versions),
            Quirks { google: true, .. } => answer.header("x-goog-generation", versions),
            _ => answer,
        }
    }

    fn get(&self, request: &Request) -> Answer {
        let objects = self.objects.lock();
        let Some(object) = objects.0.get(&request.key) else { return Answer::error(404, "NoSuchKey") };
        let range = request.headers.get("range").filter(|_| !self.quirks.ignores_range);
        let mut answer = match range.and_then(|range| range.strip_prefix("bytes=")?.split_once('-')) {
            None => Answer { body: object.body.clone(), ..Answer::new(200) },
            Some((first, last)) => {
                let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap());
                if first >= object.body.len() {
                    return Answer::error(416, "InvalidRange");
                }
                let last = last.min(object.body.len() - 1);
                let range = format!("bytes {first}-{last}/{}", object.body.len());
                Answer { body: object.body[first..=last].to_vec(), ..Answer::new(206) }
                    .header("Content-Range", range)
            }
        };
        answer.headers.extend(object.metadata.iter().cloned());
        if self.quirks.google {
            answer = answer.header("x-goog-generation", object.etag.trim_matches(['"', 'v']));
        }
        answer.header("ETag", &object.etag).header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
    }

    fn list(&self, request: &Request) -> Answer {
        let query = |name: &str| request.query.get(name).cloned().unwrap_or_default();
        let (prefix, after) = (query("prefix"), query("start-after"));
        let mut xml =
            String::from("<?xml version=\"1.0\"?><ListBucketResult><IsTruncated>false</IsTruncated>");
        for (key, object) in &self.objects.lock().0 {
            if key.starts_with(&prefix) && *key > after {
                let (etag, size) = (object.etag.replace('"', "&quot;"), object.body.len());
                write!(
                    xml,
                    "<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>\
                     <ETag>{etag}</ETag><Size>{size}</Size></Contents>"
                )
                .unwrap();
            }
        }
        xml.push_str("</ListBucketResult>");
        Answer { body: xml.into_bytes(), ..Answer::new(200) }
    }
}

fn read_request(reader: &mut BufReader<&TcpStream>) -> Option<Request> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = HashMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        match line.trim_end().split_once(':') {
            Some((name, value)) => headers.insert(name.to_ascii_lowercase(), value.trim().to_owned()),
            None => break,
        };
    }
    let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let query = query.split('&').filter_map(|pair| pair.split_once('='));
    let query = query.map(|(name, value)| (decoded(name), decoded(value))).collect();
    let path = decoded(path);
    let key = path.trim_start_matches('/').strip_prefix(BUCKET)?.trim_start_matches('/').to_owned();
    Some(Request { method, key, query, headers, body })
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next().unwrap(), rest.next().unwrap()];
            bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap());
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).unwrap()
}

/// Whether the connection can be used again.
fn send(stream: &TcpStream, answer: &Answer, head: bool, cut: bool) -> bool {
    send_as(stream, answer, answer.body.len(), head, cut)
}

fn send_as(mut stream: &TcpStream, answer: &Answer, length: usize, head: bool, cut: bool) -> bool {
    let mut text = format!("HTTP/1.1 {} As Told\r\nContent-Length: {length}\r\n", answer.status);
    for (name, value) in &answer.headers {
        write!(text, "{name}: {value}\r\n").unwrap();
    }
    text.push_str("\r\n");
    let body = if head { &[] } else { &answer.body[..] };
    let body = if cut { &body[..body.len() / 2] } else { body };
    stream.write_all(&[text.as_bytes(), body].concat()).is_ok() && !cut
}
