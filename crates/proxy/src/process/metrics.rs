//! What a proxy counts, in Prometheus' text format.

use std::fmt::Write as _;

use crate::{membership::now, reads::Reads};

fn one(text: &mut String, group: &str, name: &str, kind: &str, help: &str, value: u64) {
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "# HELP forebay_proxy_{name} {help}\n# TYPE forebay_proxy_{name} {kind}\nforebay_proxy_{name}{{group=\"{group}\"}} {value}"
    );
}

/// All metrics.
pub(super) fn text(reads: &Reads, group: &str) -> String {
    let mut text = String::new();
    let (counted, stats) = (reads.counts.all(), reads.objects.stats());
    let (acts, epoch) =
        reads.place.look(|place| (place.may_act(now()).is_ok(), place.view().map_or(0, |view| view.epoch.0)));
    let counter = |text: &mut String, name: &str, help: &str, value: u64| {
        one(text, group, name, "counter", help, value);
    };
    counter(&mut text, "hits_total", "Reads that were answered from the cache.", counted.hits);
    let _ = writeln!(
        text,
        "# HELP forebay_proxy_misses_total Reads that were answered from elsewhere.\n# TYPE forebay_proxy_misses_total counter"
    );
    for (from, value) in
        [("member", counted.from_members), ("store", counted.misses.saturating_sub(counted.from_members))]
    {
        let _ = writeln!(text, "forebay_proxy_misses_total{{group=\"{group}\",from=\"{from}\"}} {value}");
    }
    counter(&mut text, "read_bytes_total", "Bytes that were sent.", counted.bytes);
    counter(&mut text, "peeks_total", "Times that another member asked what is here.", counted.peeks);
    counter(&mut text, "distrusted_total", "Times that a client found bytes wrong.", counted.distrusted);
    counter(&mut text, "corrupt_total", "Chunks on the disk that did not check.", stats.corrupt);
    counter(&mut text, "disk_errors_total", "Faults of the cache's disk.", stats.disk_errors);
    counter(&mut text, "fetches_total", "Requests to stores.", stats.fetches);
    counter(&mut text, "fetched_bytes_total", "Bytes that came from stores.", stats.fetched_bytes);
    let gauge = |text: &mut String, name: &str, help: &str, value: u64| {
        one(text, group, name, "gauge", help, value);
    };
    gauge(&mut text, "cache_bytes", "Bytes of the cache that are used.", stats.used_bytes);
    gauge(&mut text, "cache_capacity_bytes", "Bytes of the cache.", stats.capacity_bytes);
    gauge(&mut text, "wide_pieces", "Pieces that are asked for on several members.", reads.wide_pieces());
    gauge(&mut text, "guests", "Connections of those who read.", reads.door.guests() as u64);
    gauge(&mut text, "acts", "Whether it is in its group.", u64::from(acts));
    gauge(&mut text, "view_epoch", "The view that it goes by.", epoch);
    text
}
