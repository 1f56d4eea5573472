//! What a server counts, in Prometheus' text format.

use std::fmt::Write as _;

use forebay_protocol::group::{Tally, VolumeSets};

use crate::{admin::all_sets, cluster::Cluster, registry::GroupEntry};

/// All metrics.
pub(crate) fn text(cluster: &Cluster) -> String {
    let mut text = String::new();
    requests(cluster, &mut text);
    volumes(cluster, &mut text);
    let living = cluster.members.lock().living().len() as u64;
    one(&mut text, "servers", "gauge", "Servers that live, this one among them.", living);
    groups(cluster, &mut text);
    sets(cluster, &mut text);
    text
}

fn groups(cluster: &Cluster, text: &mut String) {
    let (renewals, batches) = cluster.groups.renewals.counts();
    one(text, "renewals_total", "counter", "Renewals of members of groups that were taken up.", renewals);
    one(text, "renewal_batches_total", "counter", "Batches that these were committed in.", batches);
    let known = cluster.groups.known();
    let mut each = |name: &str, help: &str, value: &dyn Fn(&GroupEntry) -> u64| {
        let _ = writeln!(text, "# HELP forebay_group_{name} {help}\n# TYPE forebay_group_{name} gauge");
        for (group, found) in &known.groups {
            let value = value(&found.row);
            let _ = writeln!(text, "forebay_group_{name}{{group=\"{group}\"}} {value}");
        }
    };
    each("view_epoch", "Which view of the group is the present one.", &|group| group.row.view.epoch.0);
    each("members", "Members in it.", &|group| group.row.view.members.len() as u64);
    each("dirty_bytes", "Bytes at members that the store may not have.", &|group| {
        let of = known.members.iter().filter(|((of, _), _)| *of == group.id);
        of.map(|(_, found)| found.row.numbers.dirty_bytes).sum()
    });
}

/// Segments that the store may not have, of the volumes that this server owns.
fn sets(cluster: &Cluster, text: &mut String) {
    type Of = fn(&VolumeSets) -> Tally;
    let states: [(&str, Of); 5] = [
        ("open", |sets| sets.open),
        ("sealed", |sets| sets.sealed),
        ("under", |sets| sets.under),
        ("missing", |sets| sets.missing),
        ("lost", |sets| sets.lost),
    ];
    let all = all_sets(cluster, false);
    let mut each = |name: &str, help: &str, value: &dyn Fn(Tally) -> u64| {
        head(text, name, "gauge", help);
        for sets in &all {
            let VolumeSets { volume, group, .. } = sets;
            for (state, of) in states {
                let value = value(of(sets));
                let _ = writeln!(
                    text,
                    "forebay_meta_{name}{{volume=\"{volume}\",group=\"{group}\",state=\"{state}\"}} {value}"
                );
            }
        }
    };
    each("sets", "Segments that the store may not have, by how they stand.", &|tally| tally.segments);
    each("set_bytes", "Bytes of files in them.", &|tally| tally.bytes);
    head(
        text,
        "set_oldest_seconds",
        "gauge",
        "For how long the oldest of them that is sealed has waited to be stored.",
    );
    for sets in &all {
        let VolumeSets { volume, group, oldest_s, .. } = sets;
        let _ = writeln!(
            text,
            "forebay_meta_set_oldest_seconds{{volume=\"{volume}\",group=\"{group}\"}} {oldest_s}"
        );
    }
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "# HELP forebay_meta_{name} {help}\n# TYPE forebay_meta_{name} {kind}");
}

fn one(text: &mut String, name: &str, kind: &str, help: &str, value: u64) {
    head(text, name, kind, help);
    let _ = writeln!(text, "forebay_meta_{name} {value}");
}

fn requests(cluster: &Cluster, text: &mut String) {
    head(text, "requests_total", "counter", "Requests that came, by kind.");
    for (kind, count) in cluster.counts.requests() {
        let kind = format!("{kind:?}").to_ascii_lowercase();
        let _ = writeln!(text, "forebay_meta_requests_total{{kind=\"{kind}\"}} {count}");
    }
    one(
        text,
        "refused_total",
        "counter",
        "Requests that were refused, redirected ones too.",
        cluster.counts.refused(),
    );
}

fn volumes(cluster: &Cluster, text: &mut String) {
    let hosted: Vec<_> = cluster.hosted.read().values().cloned().collect();
    let all: Vec<_> =
        hosted.iter().map(|hosted| (hosted, hosted.owner().map(|owner| owner.status()))).collect();
    head(text, "volume_owned", "gauge", "Whether this server owns the volume.");
    for (hosted, status) in &all {
        let owned = u8::from(status.is_some());
        let _ = writeln!(text, "forebay_meta_volume_owned{{volume=\"{}\"}} {owned}", hosted.name);
    }
    let mut each = |name: &str, kind: &str, help: &str, value: &dyn Fn(usize) -> Option<f64>| {
        head(text, name, kind, help);
        for (index, (hosted, _)) in all.iter().enumerate() {
            if let Some(value) = value(index) {
                let _ = writeln!(text, "forebay_meta_{name}{{volume=\"{}\"}} {value}", hosted.name);
            }
        }
    };
    let of = |index: usize| all.get(index).and_then(|(_, status)| *status);
    each("sessions", "gauge", "Sessions of clients.", &|at| of(at).map(|of| of.sessions as f64));
    each("leases", "gauge", "Leases of all sessions.", &|at| of(at).map(|of| of.leases as f64));
    each("waiting", "gauge", "Requests that wait.", &|at| of(at).map(|of| of.waiting as f64));
    each("batches_total", "counter", "Batches that were committed.", &|at| {
        of(at).map(|of| of.batches as f64)
    });
    each("commit_seconds_total", "counter", "Time that these commits took.", &|at| {
        of(at).map(|of| of.commit_us as f64 / 1e6)
    });
    each("pushes_total", "counter", "Recalls and other pushes that went out.", &|at| {
        of(at).and_then(|_| all.get(at)).map(|(hosted, _)| hosted.links.pushes() as f64)
    });
}
