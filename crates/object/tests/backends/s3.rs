//! The suite against a real server, where one is named.

use std::env;

use forebay_object::{ObjectStore, Patience, StoreOptions, StoreUrl, probe};

use crate::suite::{keys, suite};

#[test]
fn a_real_server_passes_the_suite() {
    let Ok(endpoint) = env::var("FOREBAY_S3_ENDPOINT") else {
        println!(
            "NOT RUN: FOREBAY_S3_ENDPOINT names no S3 server; set it, FOREBAY_S3_BUCKET and the AWS_* credentials"
        );
        return;
    };
    let bucket = env::var("FOREBAY_S3_BUCKET")
        .expect("FOREBAY_S3_BUCKET must name a bucket beside FOREBAY_S3_ENDPOINT");
    for prefix in ["", "some/prefix"] {
        let url: StoreUrl = format!("s3://{bucket}/{prefix}").parse().unwrap();
        let options = StoreOptions { endpoint: Some(endpoint.clone()), ..StoreOptions::default() };
        let store = ObjectStore::open(&url, &options).unwrap().patient(Patience::Quick);
        println!("{}", probe(&store).unwrap());
        assert!(keys(&store, "probe").is_empty());
        suite(&store);
    }
}

#[test]
fn a_real_server_refuses_by_kind() {
    use forebay_object::{Backend, ErrorKind};
    let Ok(endpoint) = env::var("FOREBAY_S3_ENDPOINT") else {
        println!(
            "NOT RUN: FOREBAY_S3_ENDPOINT names no S3 server; set it, FOREBAY_S3_BUCKET and the AWS_* credentials"
        );
        return;
    };
    let bucket = env::var("FOREBAY_S3_BUCKET")
        .expect("FOREBAY_S3_BUCKET must name a bucket beside FOREBAY_S3_ENDPOINT");
    let no_file = tempfile::tempdir().unwrap();
    let with = |extra: &[(&str, &str)], bucket: &str| {
        let extra = extra.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let options = StoreOptions {
            endpoint: Some(endpoint.clone()),
            credentials_file: Some(no_file.path().join("none")),
            patience: Patience::Quick,
            extra,
            ..StoreOptions::default()
        };
        ObjectStore::open(&format!("s3://{bucket}").parse().unwrap(), &options).unwrap()
    };
    let wrong_secret = with(&[("aws_secret_access_key", "wrong")], &bucket);
    let error = wrong_secret.put_new("x", bytes::Bytes::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthenticated, "{error}");
    let wrong_key = with(&[("aws_access_key_id", "nobody"), ("aws_secret_access_key", "wrong")], &bucket);
    let error = wrong_key.list("", None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthenticated, "{error}");
    let no_bucket = with(&[], "forebay-no-such-bucket");
    let error = no_bucket.put_new("x", bytes::Bytes::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoBucket, "{error}");
    let error = no_bucket.list("", None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoBucket, "{error}");
}
