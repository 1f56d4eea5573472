//! The targets: which figure of which run is to be where.

use super::figure::Figure;
use super::run::Run;
use crate::Workload;

/// Where a figure shall be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Bound {
    AtLeast(f64),
    AtMost(f64),
    /// Only told.
    None,
}

#[derive(Debug)]
pub(super) struct Target {
    pub(super) what: &'static str,
    pub(super) run: Run,
    pub(super) workload: Workload,
    pub(super) figure: Figure,
    pub(super) bound: Bound,
}

/// The four operations that change names, with what the best open system reaches on a machine of this kind: JuiceFS 1.4.1 with Badger, one client;
/// operations a second, and its process's time for each, µs.
const CHANGING: [(&str, Workload, f64, f64); 4] = [
    ("create an empty file", Workload::Create, 2_960.0, 260.0),
    ("create, write 4 KiB, close", Workload::SmallWrite, 1_328.0, 657.0),
    ("unlink", Workload::Unlink, 3_250.0, 270.0),
    ("rename", Workload::Rename, 3_900.0, 200.0),
];

const STATED_RATES: [&str; 4] = [
    "create, of JuiceFS's 2,960/s",
    "create and write, of JuiceFS's 1,328/s",
    "unlink, of JuiceFS's 3,250/s",
    "rename, of JuiceFS's 3,900/s",
];

const STATED_TIMES: [&str; 4] = [
    "create, of JuiceFS's 260 µs",
    "create and write, of JuiceFS's 657 µs",
    "unlink, of JuiceFS's 270 µs",
    "rename, of JuiceFS's 200 µs",
];

fn target(what: &'static str, run: Run, workload: Workload, figure: Figure, bound: Bound) -> Target {
    Target { what, run, workload, figure, bound }
}

/// All of them, in the order of the lines.
pub(super) fn targets() -> Vec<Target> {
    [names(), data(), collections()].into_iter().flatten().collect()
}

fn names() -> Vec<Target> {
    use Bound::{AtLeast, AtMost, None};
    use Figure as F;
    use Workload as W;
    let mut all = Vec::new();
    for run in [Run::Names, Run::NamesAsked, Run::NamesOfOne, Run::NamesOfOneAsked] {
        all.push(target("warm stat", run, W::StatWarm, F::Ratio, AtLeast(0.8)));
        all.push(target("warm open, read 4 KiB, close", run, W::SmallReadWarm, F::Ratio, AtLeast(0.8)));
        for (what, workload, ..) in CHANGING {
            all.push(target(what, run, workload, F::Ratio, AtLeast(0.5)));
        }
    }
    for run in [Run::Names, Run::NamesOfOne] {
        for (what, workload, ..) in CHANGING {
            let what = match workload {
                W::Create => "create, daemon's µs",
                W::SmallWrite => "create and write, daemon's µs",
                W::Unlink => "unlink, daemon's µs",
                W::Rename => "rename, daemon's µs",
                _ => what,
            };
            all.push(target(what, run, workload, F::Processor, AtMost(60.0)));
        }
    }
    for ((_, workload, rate, time), (rates, times)) in
        CHANGING.into_iter().zip(STATED_RATES.into_iter().zip(STATED_TIMES))
    {
        all.push(target(rates, Run::NamesOfOne, workload, F::OfStatedRate(rate), AtLeast(2.5)));
        all.push(target(times, Run::NamesOfOne, workload, F::OfStatedTime(time), AtMost(0.25)));
    }
    all.extend(CHANGING.map(|(what, workload, ..)| target(what, Run::NamesLocal, workload, F::Ratio, None)));
    all.extend([
        target("find -printf '%s' of 100,000, s", Run::Listing, W::FindCold, F::SecondsFor100k, AtMost(0.4)),
        target("ls -l of 100,000, s", Run::Listing, W::LsCold, F::SecondsFor100k, AtMost(1.2)),
        target(
            "ls -l, of its requests' cost do-nothing",
            Run::Listing,
            W::LsCold,
            F::OfRequestsCost,
            AtMost(1.2),
        ),
        target(
            "stat p99, of quiet",
            Run::Collecting,
            W::StatCollecting,
            F::TailOf(W::StatQuiet),
            AtMost(2.0),
        ),
        target("stat p99 quiet, µs", Run::Collecting, W::StatQuiet, F::Tail, None),
    ]);
    all
}

fn data() -> Vec<Target> {
    use Bound::{AtLeast, None};
    use Figure as F;
    use Workload as W;
    let mut all = Vec::new();
    for run in [Run::Data, Run::DataOfFour] {
        all.push(target("warm sequential read", run, W::SequentialReadWarm, F::Ratio, AtLeast(0.6)));
        all.push(target("warm random 4 KiB read", run, W::RandomReadWarm, F::Ratio, None));
        all.push(target("cold sequential read", run, W::SequentialReadCold, F::Ratio, AtLeast(0.9)));
    }
    for run in [Run::Through, Run::ThroughOfFour] {
        all.push(target("warm sequential read", run, W::SequentialReadWarm, F::Ratio, AtLeast(0.95)));
        all.push(target("warm random 4 KiB read", run, W::RandomReadWarm, F::Ratio, AtLeast(0.85)));
    }
    all.extend([
        target("sequential write, fsync", Run::Data, W::SequentialWrite, F::SyncedRatio, AtLeast(0.8)),
        target("unpack a source tree", Run::Data, W::TreeWrite, F::Ratio, AtLeast(1.0 / 3.0)),
        target("remove it", Run::Data, W::TreeRemove, F::Ratio, AtLeast(0.25)),
        target(
            "random 4 KiB writes/s, fsync",
            Run::DataOfFour,
            W::RandomWrite,
            F::SyncedRate,
            AtLeast(40_000.0),
        ),
        target(
            "read after random writes, of before",
            Run::DataOfFour,
            W::RewrittenReadCold,
            F::OfOwn(W::SequentialReadCold),
            AtLeast(0.7),
        ),
        target("cold sequential read, of curl", Run::Bucket, W::SequentialReadCold, F::Ratio, AtLeast(0.9)),
        target("samples a second", Run::Training, W::Epoch, F::Ratio, AtLeast(0.97)),
        target(
            "processor time, all processes",
            Run::Training,
            W::Epoch,
            F::AllProcessor,
            Bound::AtMost(1.05),
        ),
    ]);
    all
}

fn collections() -> Vec<Target> {
    use Bound::{AtLeast, AtMost, None};
    use Figure as F;
    use Workload as W;
    vec![
        target(
            "files a sync of the journal",
            Run::Synced,
            W::SmallSync,
            F::PerGrowth("journal_syncs"),
            AtLeast(8.0),
        ),
        target("files synced one by one", Run::Synced, W::SmallSync, F::Ratio, None),
        target("1,000,000 entries, created", Run::Large, W::LargeCreate, F::Ratio, None),
        target("1,000,000 entries, listed cold, s", Run::Large, W::LargeList, F::SecondsForMillion, None),
        target("listed cold", Run::Large, W::LargeList, F::Ratio, None),
        target("renaming their directory", Run::Large, W::LargeRename, F::Ratio, None),
        target("100,000 files in a tree, removed, s", Run::Large, W::TreeRemove, F::SecondsFor100k, None),
        target("removed", Run::Large, W::TreeRemove, F::Ratio, None),
        target("1,000,000 files of 8 KiB written, s", Run::Many, W::Many, F::SecondsForMillion, None),
        target("metadata a file, bytes", Run::Many, W::Many, F::Growth("metadata_bytes"), AtMost(150.0)),
        target("most memory, MiB", Run::Many, W::Many, F::PeakMemory, AtMost(200.0)),
    ]
}
