//! How a proxy runs, and what of that is refused.

use std::path::PathBuf;

use forebay_group::{
    GroupTerms, Incarnation, Member, MemberState,
    placement::{WEIGHT_MAX, ZONE_MAX},
};
use forebay_object::StoreOptions;
use forebay_protocol::{
    Kind,
    group::{GroupInfo, GroupRequest},
};
use forebay_rpc::{Address, Security};

use super::{CACHE_MIN, GROUP_MS, ProxyError};
use crate::membership::Meta;

/// How a proxy runs.
#[derive(Clone, Debug)]
pub struct ProxyOptions {
    /// Metadata servers.
    pub meta: Vec<Address>,
    /// The group's name.
    pub group: String,
    /// Where its marker, its cache and its log are.
    pub directory: PathBuf,
    /// Bytes of the cache.
    pub cache: u64,
    /// Where it listens.
    pub listen: Vec<Address>,
    /// Where clients and other members reach it; by default the first address that it listens at.
    pub advertise: Option<Address>,
    /// How connections are protected, to it and from it.
    pub security: Security,
    /// Whether clients on this machine need no certificate.
    pub insecure: bool,
    /// Its share, 1 to [`WEIGHT_MAX`]; by default the GiB of its cache.
    pub weight: Option<u32>,
    /// Its machine's name: clients there take it first.
    pub node: String,
    /// Its failure domain; by default its node.
    pub zone: Option<String>,
    /// How stores are reached, where volumes do not say it.
    pub store: StoreOptions,
    /// How long things last: the same as at the metadata servers.
    pub terms: GroupTerms,
}

/// Without TLS there is this machine alone, and only where that was asked for.
pub(super) fn check(options: &ProxyOptions) -> Result<(), ProxyError> {
    let told = |text: String| Err(ProxyError::Told(text));
    if options.listen.is_empty() {
        return told("a proxy needs an address to listen at: give --listen ADDR".to_owned());
    }
    if options.cache < CACHE_MIN {
        return told(format!(
            "a cache of {} bytes is too small for a proxy: give --cache-size 64MiB or more",
            options.cache
        ));
    }
    if let Some(weight) = options.weight.filter(|weight| !(1..=WEIGHT_MAX).contains(weight)) {
        return told(format!("{weight} is no weight: a member's share is from 1 to {WEIGHT_MAX}"));
    }
    // As the metadata servers take it: said before anything is made.
    let is_none =
        |zone: &&String| !(1..=ZONE_MAX).contains(&zone.len()) || zone.chars().any(char::is_control);
    if let Some(zone) = options.zone.as_ref().filter(is_none) {
        return told(format!("{zone:?} is no zone: a name of 1 to {ZONE_MAX} bytes"));
    }
    let tcp = options.listen.iter().find(|address| matches!(address, Address::Tcp { .. }));
    match (&options.security, tcp) {
        (Security::Insecure, Some(address)) if !options.insecure => told(format!(
            "will not listen at {address} without TLS: give --tls-ca, --tls-cert and --tls-key (`forebay pki` makes them), or --insecure for clients of this machine alone"
        )),
        _ => Ok(()),
    }
}

pub(super) fn find_group(meta: &Meta, name: &str) -> Result<GroupInfo, ProxyError> {
    let request = GroupRequest::Show(name.to_owned());
    let groups: Vec<GroupInfo> = meta.ask(Kind::Groups, &request, GROUP_MS)?;
    let none = || ProxyError::Told("the server's answer names no group".to_owned());
    groups.into_iter().next().ok_or_else(none)
}

pub(super) fn member(options: &ProxyOptions, address: String) -> Member {
    let share = u32::try_from(options.cache >> 30).unwrap_or(WEIGHT_MAX);
    Member {
        // Drawn by whoever joins.
        incarnation: Incarnation::default(),
        address,
        node: options.node.clone(),
        zone: options.zone.clone().unwrap_or_else(|| options.node.clone()),
        weight: options.weight.unwrap_or(share).clamp(1, WEIGHT_MAX),
        state: MemberState::Active,
    }
}

/// Where clients reach the proxy.
pub(super) fn advertised(options: &ProxyOptions, addresses: &[Address]) -> Result<String, ProxyError> {
    if let Some(address) = &options.advertise {
        return Ok(address.to_string());
    }
    let tcp = addresses.iter().find(|address| matches!(address, Address::Tcp { .. }));
    let Some(address) = tcp.or(addresses.first()) else {
        return Err(ProxyError::Told("the proxy listens nowhere".to_owned()));
    };
    match address {
        Address::Tcp { host, .. } if matches!(host.as_str(), "0.0.0.0" | "::") => {
            Err(ProxyError::Told(format!(
                "clients cannot reach a proxy at {address}: say with --advertise under which name or number they reach this machine"
            )))
        }
        address => Ok(address.to_string()),
    }
}
