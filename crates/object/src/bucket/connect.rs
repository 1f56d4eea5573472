//! From a URL and options to a client of the crate `object_store`.

use std::{env, path::PathBuf, str::FromStr, sync::Arc, time::Duration};

use object_store::{
    ClientOptions, ObjectStore, RetryConfig,
    aws::{AmazonS3Builder, AmazonS3ConfigKey, AwsCredential},
    azure::{AzureConfigKey, MicrosoftAzureBuilder},
    gcp::{GoogleCloudStorageBuilder, GoogleConfigKey},
};
use url::Url;

use super::{credentials::Credentials, watch::Listener};
use crate::{ErrorKind, ObjectError, Operation, StoreOptions, StoreUrl};

/// A client that makes each request once.
pub(super) struct Connection {
    pub(super) client: Box<dyn ObjectStore>,
    pub(super) credentials: Option<Arc<Credentials>>,
    /// The address that requests go to, where it is not the provider's own.
    pub(super) endpoint: Option<String>,
}

pub(super) fn connect(url: &StoreUrl, options: &StoreOptions) -> Result<Connection, ObjectError> {
    let connection = match url {
        StoreUrl::File(_) => Err("this is a directory, not a bucket".into()),
        StoreUrl::S3 { bucket, .. } => s3(bucket, options),
        StoreUrl::Gs { bucket, .. } => gcs(bucket, options),
        StoreUrl::Az { container, .. } => azure(container, options),
    };
    connection.map_err(|reason| ObjectError::new(ErrorKind::Other, Operation::Open, url, "", reason))
}

fn s3(bucket: &str, options: &StoreOptions) -> Result<Connection, String> {
    let mut builder = AmazonS3Builder::from_env();
    for (name, value) in &options.extra {
        builder = builder.with_config(key::<AmazonS3ConfigKey>(name, "S3")?, value);
    }
    if let Some(region) = &options.region {
        builder = builder.with_region(region);
    }
    if let Some(endpoint) = &options.endpoint {
        builder = builder.with_config(AmazonS3ConfigKey::S3Endpoint, endpoint);
    }
    let value = |key| builder.get_config_value(&key);
    let endpoint = value(AmazonS3ConfigKey::S3Endpoint).or_else(|| value(AmazonS3ConfigKey::Endpoint));
    let endpoint = endpoint.map(|endpoint| parse_endpoint(&endpoint)).transpose()?;
    let given = match (value(AmazonS3ConfigKey::AccessKeyId), value(AmazonS3ConfigKey::SecretAccessKey)) {
        (Some(key_id), Some(secret_key)) => {
            Some(AwsCredential { key_id, secret_key, token: value(AmazonS3ConfigKey::Token) })
        }
        (None, None) => None,
        (Some(_), None) => {
            return Err("AWS_ACCESS_KEY_ID is set, but AWS_SECRET_ACCESS_KEY is not: set both".into());
        }
        (None, Some(_)) => {
            return Err("AWS_SECRET_ACCESS_KEY is set, but AWS_ACCESS_KEY_ID is not: set both".into());
        }
    };
    let unsigned = value(AmazonS3ConfigKey::SkipSignature).is_some_and(|value| is_true(&value));
    let from_elsewhere = endpoint.is_none()
        || ELSEWHERE.iter().any(|name| env::var_os(name).is_some_and(|value| !value.is_empty()));

    let allow_http = options.allow_http || set_in(&options.extra, &["aws_allow_http", "allow_http"]);
    let allow_http = allow_http || env::var("AWS_ALLOW_HTTP").is_ok_and(|value| is_true(&value));
    let client = client_options(endpoint.as_ref(), allow_http)?;
    let client = extra_client_options(client, &options.extra);
    let path_style = options.path_style.unwrap_or(endpoint.is_some() || bucket.contains('.'));
    if let Some(endpoint) = endpoint.as_ref().filter(|_| !path_style) {
        builder = builder.with_config(AmazonS3ConfigKey::S3Endpoint, in_host(endpoint, bucket)?);
    }
    builder = builder
        .with_bucket_name(bucket)
        .with_virtual_hosted_style_request(!path_style)
        .with_disable_bulk_delete(true)
        .with_http_connector(Listener)
        .with_retry(once())
        .with_client_options(client);

    let profile =
        options.profile.clone().or_else(|| env::var("AWS_PROFILE").ok()).filter(|name| !name.is_empty());
    let profile = profile.unwrap_or_else(|| "default".into());
    let file = options.credentials_file.clone().or_else(credentials_file);
    let credentials = Arc::new(Credentials::new(given, file, profile));
    let credentials = (!unsigned && (credentials.is_some() || !from_elsewhere)).then_some(credentials);
    if let Some(credentials) = &credentials {
        builder = builder.with_credentials(Arc::clone(credentials) as _);
    }
    let client = Box::new(builder.build().map_err(|error| error.to_string())?);
    Ok(Connection { client, credentials, endpoint: endpoint.map(String::from) })
}

/// Variables that say where else a credential comes from; the crate renews those itself.
const ELSEWHERE: [&str; 3] = [
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
];

fn gcs(bucket: &str, options: &StoreOptions) -> Result<Connection, String> {
    let mut builder = GoogleCloudStorageBuilder::from_env();
    for (name, value) in &options.extra {
        builder = builder.with_config(key::<GoogleConfigKey>(name, "Google Cloud Storage")?, value);
    }
    if let Some(endpoint) = &options.endpoint {
        builder = builder.with_base_url(endpoint.trim_end_matches('/'));
    }
    let endpoint = builder.get_config_value(&GoogleConfigKey::BaseUrl);
    let endpoint = endpoint.map(|endpoint| parse_endpoint(&endpoint)).transpose()?;
    let client = client_options(endpoint.as_ref(), options.allow_http)?;
    let builder = builder
        .with_bucket_name(bucket)
        .with_http_connector(Listener)
        .with_retry(once())
        .with_client_options(extra_client_options(client, &options.extra));
    let client = Box::new(builder.build().map_err(|error| error.to_string())?);
    Ok(Connection { client, credentials: None, endpoint: endpoint.map(String::from) })
}

fn azure(container: &str, options: &StoreOptions) -> Result<Connection, String> {
    let mut builder = MicrosoftAzureBuilder::from_env();
    for (name, value) in &options.extra {
        builder = builder.with_config(key::<AzureConfigKey>(name, "Azure")?, value);
    }
    if let Some(endpoint) = &options.endpoint {
        builder = builder.with_endpoint(endpoint.trim_end_matches('/').to_owned());
    }
    let endpoint = builder.get_config_value(&AzureConfigKey::Endpoint);
    let endpoint = endpoint.map(|endpoint| parse_endpoint(&endpoint)).transpose()?;
    let client = client_options(endpoint.as_ref(), options.allow_http)?;
    let builder = builder
        .with_container_name(container)
        .with_http_connector(Listener)
        .with_retry(once())
        .with_client_options(extra_client_options(client, &options.extra));
    let client = Box::new(builder.build().map_err(|error| error.to_string())?);
    Ok(Connection { client, credentials: None, endpoint: endpoint.map(String::from) })
}

fn key<K: FromStr>(name: &str, store: &str) -> Result<K, String> {
    name.to_ascii_lowercase().parse().map_err(|_| format!("{store} has no option {name:?}"))
}

fn once() -> RetryConfig {
    RetryConfig { max_retries: 0, retry_timeout: Duration::ZERO, ..RetryConfig::default() }
}

/// Time-outs for whole requests are set by the retries; the connection has its own, so that a dead address is noticed early.
fn client_options(endpoint: Option<&Url>, allow_http: bool) -> Result<ClientOptions, String> {
    let mut client = ClientOptions::new()
        .with_timeout_disabled()
        .with_connect_timeout(Duration::from_secs(4))
        .with_allow_http(allow_http);
    if let Some(endpoint) = endpoint {
        let local = is_local(endpoint);
        if endpoint.scheme() == "http" && !allow_http && !local {
            return Err(format!("{endpoint} is not encrypted: use https, or allow http"));
        }
        if local {
            // A proxy that the environment names cannot reach this machine's own addresses; naming any, with these
            // excluded, and those where a cloud's machines ask for credentials, switches it off.
            client = client
                .with_allow_http(true)
                .with_proxy_url("http://127.0.0.1:9")
                .with_proxy_excludes("localhost,127.0.0.0/8,::1,169.254.0.0/16");
        }
    }
    Ok(client)
}

fn extra_client_options(mut client: ClientOptions, extra: &[(String, String)]) -> ClientOptions {
    for (name, value) in extra {
        let name = name.to_ascii_lowercase();
        if let Ok(key) = name.strip_prefix("aws_").unwrap_or(&name).parse() {
            client = client.with_config(key, value);
        }
    }
    client
}

fn set_in(extra: &[(String, String)], names: &[&str]) -> bool {
    extra.iter().any(|(name, value)| names.contains(&name.to_ascii_lowercase().as_str()) && is_true(value))
}

fn is_true(value: &str) -> bool {
    matches!(value.to_ascii_lowercase().as_str(), "1" | "true" | "yes" | "on" | "y")
}

fn parse_endpoint(endpoint: &str) -> Result<Url, String> {
    let reason = || format!("the endpoint {endpoint:?} is not a URL such as https://HOST:PORT");
    let url = Url::parse(endpoint).map_err(|_| reason())?;
    if matches!(url.scheme(), "http" | "https") && url.host().is_some() { Ok(url) } else { Err(reason()) }
}

fn is_local(endpoint: &Url) -> bool {
    match endpoint.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// The endpoint with the bucket in front of its host name.
fn in_host(endpoint: &Url, bucket: &str) -> Result<String, String> {
    let mut url = endpoint.clone();
    match endpoint.host() {
        Some(url::Host::Domain(host)) => {
            let host = format!("{bucket}.{host}");
            url.set_host(Some(&host)).map_err(|error| format!("{host}: {error}"))?;
            Ok(url.as_str().trim_end_matches('/').to_owned())
        }
        _ => Err(format!(
            "{endpoint} is an address without a name, so the bucket must be in the path: use path style"
        )),
    }
}

fn credentials_file() -> Option<PathBuf> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty());
    set("AWS_SHARED_CREDENTIALS_FILE")
        .map(PathBuf::from)
        .or_else(|| set("HOME").map(|home| PathBuf::from(home).join(".aws/credentials")))
}
