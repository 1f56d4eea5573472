//! What a proxy counts, in Prometheus' text format.

use std::fmt::Write as _;

use forebay_protocol::PolicySums;

use crate::{log::Log, membership::now, reads::Reads, volumes, writeback::WriteBack};

fn one(text: &mut String, group: &str, name: &str, kind: &str, help: &str, value: u64) {
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "# HELP forebay_proxy_{name} {help}\n# TYPE forebay_proxy_{name} {kind}\nforebay_proxy_{name}{{group=\"{group}\"}} {value}"
    );
}

/// All metrics.
pub(super) fn text(
    reads: &Reads,
    log: &Log,
    (writes, stored, policies): &(&WriteBack, volumes::Counted, PolicySums),
    group: &str,
) -> String {
    let mut text = String::new();
    of_reads(&mut text, reads, group);
    of_log(&mut text, log, writes, group);
    of_volumes(&mut text, stored, group);
    of_policies(&mut text, policies, group);
    text
}

fn counter(text: &mut String, group: &str, name: &str, help: &str, value: u64) {
    one(text, group, name, "counter", help, value);
}

fn gauge(text: &mut String, group: &str, name: &str, help: &str, value: u64) {
    one(text, group, name, "gauge", help, value);
}

fn of_policies(text: &mut String, sums: &PolicySums, group: &str) {
    let _ = writeln!(
        text,
        "# HELP forebay_proxy_policy_bytes What policies want in this member's cache, and what became of it.\n# TYPE forebay_proxy_policy_bytes gauge"
    );
    let states = [
        ("wanted", sums.wanted),
        ("kept", sums.kept),
        ("no_room", sums.no_room),
        ("failed", sums.failed),
        ("dropped", sums.dropped),
    ];
    for (state, value) in states {
        let _ = writeln!(text, "forebay_proxy_policy_bytes{{group=\"{group}\",state=\"{state}\"}} {value}");
    }
}

fn of_volumes(text: &mut String, stored: &volumes::Counted, group: &str) {
    let mut counted = |name: &str, help: &str, value: u64| counter(text, group, name, help, value);
    counted("puts_total", "Objects that were put into stores.", stored.puts);
    counted("put_bytes_total", "Their bytes.", stored.put_bytes);
    counted(
        "puts_not_taken_total",
        "Segments in them that others had stored, or taken, before.",
        stored.not_taken,
    );
    counted("copies_dropped_total", "Copies that were given up as owners said.", stored.dropped);
    counted("segments_recovered_total", "Segments that were fenced for their owner.", stored.fenced);
    counted("segments_repaired_total", "Segments that were copied to other members.", stored.repaired);
}

fn of_log(text: &mut String, log: &Log, writes: &WriteBack, group: &str) {
    let (status, counts, here) = (log.status(), log.counts(), writes.written_here().bytes());
    let writes = writes.counted();
    let failed = u64::from(log.failure().is_some());
    counter(text, group, "appends_total", "Appends that were taken in.", counts.appends);
    counter(text, group, "append_bytes_total", "Their bytes.", counts.append_bytes);
    counter(text, group, "local_append_bytes_total", "Bytes of these from clients of this machine.", here);
    counter(
        text,
        group,
        "syncs_total",
        "Rounds in which the log was synced for all who waited.",
        counts.syncs,
    );
    let seconds = counts.sync_micros as f64 / 1e6;
    let _ = writeln!(
        text,
        "# HELP forebay_proxy_sync_seconds_total How long these took.\n# TYPE forebay_proxy_sync_seconds_total counter\nforebay_proxy_sync_seconds_total{{group=\"{group}\"}} {seconds}"
    );
    counter(
        text,
        group,
        "moved_bytes_total",
        "Bytes that were written anew to free the log's oldest file.",
        counts.moved_bytes,
    );
    counter(text, group, "refused_total", "Appends, seals and copies that were refused.", writes.refused);
    counter(text, group, "waited_total", "Appends that waited for room.", writes.waited);
    counter(text, group, "fenced_total", "Segments that were fenced by other members.", writes.fenced);
    counter(
        text,
        group,
        "read_back_bytes_total",
        "Bytes of segments that were read back.",
        writes.read_back_bytes,
    );
    gauge(text, group, "log_bytes", "Bytes of the log's files.", status.len);
    gauge(text, group, "dirty_bytes", "Bytes in the log that the store may not have.", status.dirty);
    let budget = log.budget();
    gauge(text, group, "dirty_limit_bytes", "Bytes of these that may be: the budget.", budget.limit);
    let _ = writeln!(
        text,
        "# HELP forebay_proxy_pace_seconds How long a writer is told to wait before its next append.\n# TYPE forebay_proxy_pace_seconds gauge\nforebay_proxy_pace_seconds{{group=\"{group}\"}} {}",
        budget.pace(status.dirty).as_secs_f64()
    );
    gauge(text, group, "dirty_segments", "Segments of which the store may not have all.", status.segments);
    gauge(
        text,
        group,
        "log_failed",
        "Whether the log takes nothing more until the proxy is started again.",
        failed,
    );
    gauge(
        text,
        group,
        "log_lost",
        "Whether records of the log are lost: the member is to be replaced.",
        u64::from(status.lost),
    );
}

fn of_reads(text: &mut String, reads: &Reads, group: &str) {
    let (counted, stats) = (reads.counts.all(), reads.objects.stats());
    let (acts, epoch) =
        reads.place.look(|place| (place.may_act(now()).is_ok(), place.view().map_or(0, |view| view.epoch.0)));
    counter(text, group, "hits_total", "Reads that were answered from the cache.", counted.hits);
    let _ = writeln!(
        text,
        "# HELP forebay_proxy_misses_total Reads that were answered from elsewhere.\n# TYPE forebay_proxy_misses_total counter"
    );
    for (from, value) in
        [("member", counted.from_members), ("store", counted.misses.saturating_sub(counted.from_members))]
    {
        let _ = writeln!(text, "forebay_proxy_misses_total{{group=\"{group}\",from=\"{from}\"}} {value}");
    }
    counter(text, group, "read_bytes_total", "Bytes that were sent.", counted.bytes);
    counter(
        text,
        group,
        "local_read_bytes_total",
        "Bytes of these to clients of this machine.",
        counted.here,
    );
    counter(text, group, "peeks_total", "Times that another member asked what is here.", counted.peeks);
    counter(text, group, "distrusted_total", "Times that a client found bytes wrong.", counted.distrusted);
    counter(text, group, "corrupt_total", "Chunks on the disk that did not check.", stats.corrupt);
    counter(text, group, "disk_errors_total", "Faults of the cache's disk.", stats.disk_errors);
    counter(text, group, "fetches_total", "Requests to stores.", stats.fetches);
    counter(text, group, "fetched_bytes_total", "Bytes that came from stores.", stats.fetched_bytes);
    gauge(text, group, "cache_bytes", "Bytes of the cache that are used.", stats.used_bytes);
    gauge(text, group, "cache_capacity_bytes", "Bytes of the cache.", stats.capacity_bytes);
    gauge(text, group, "pinned_bytes", "Bytes of it that stay whatever is read.", stats.pinned_bytes);
    gauge(text, group, "pinned_limit_bytes", "Bytes that may.", stats.pinned_max_bytes);
    gauge(text, group, "wide_pieces", "Pieces that are asked for on several members.", reads.wide_pieces());
    gauge(text, group, "guests", "Connections of those who read.", reads.door.guests() as u64);
    gauge(text, group, "acts", "Whether it is in its group.", u64::from(acts));
    gauge(text, group, "view_epoch", "The view that it goes by.", epoch);
}
