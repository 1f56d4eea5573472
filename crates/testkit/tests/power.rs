//! Crash tests on real mounts: 150 power cuts and 50 kills of the `forebay` binary, with its store in the volume, beside it and on another
//! disk, in both classes, with machines lost and taken over; and the kit itself tried on a small file system that is right, and wrong on
//! demand.
//!
//! The binary is `$FOREBAY_BIN`, else `forebay` in the target directory of this test. Without one the test of it says so and is
//! passed over, unless `FOREBAY_BIN` is set: then it must be there.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use forebay_testkit::power::campaign::{Life, Outcome, StoreAt};
use forebay_testkit::power::cut::{Cutter, Fill, Names, Rules};
use forebay_testkit::power::daemon::{Program, Trouble};
use forebay_testkit::power::disk::Disk;
use forebay_testkit::power::layer::Layer;
use forebay_testkit::power::place::Place;
use forebay_testkit::power::rng::Rng;
use forebay_testkit::power::workload::Plan;

const STRICT: Rules = Rules { names: Names::Strict, fill: Fill::ZerosOrNoise };
const ORDERED: Rules = Rules { names: Names::Ordered, fill: Fill::ZerosOrNoise };

/// The small file system that the kit is tried on.
const MODEL: &str = env!("CARGO_BIN_EXE_crash-model");

/// One test at a time: a process that another test is just starting has, for a moment, this one's files open, and then a
/// mount is busy.
static TURN: Mutex<()> = Mutex::new(());

/// Past the capture of the test harness, so that what was run is always in the log.
fn say(line: &str) {
    drop(writeln!(std::io::stderr(), "{line}"));
}

/// The directory that cargo builds into: this test lies in its `deps`.
fn built() -> PathBuf {
    let own = std::env::current_exe().unwrap_or_default();
    own.parent().and_then(Path::parent).map(Path::to_owned).unwrap_or_default()
}

fn life(binary: &Path, place: &Place, name: &str, seed: u64) -> Life {
    let program = Program {
        binary: binary.to_owned(),
        create_options: Vec::new(),
        mount_options: Vec::new(),
        environment: Vec::new(),
        output: place.path().join("output"),
    };
    let plan = Plan { seed, threads: 3, steps: 25, stream_bytes: 2 << 20, rich: false };
    Life {
        program,
        place: place.path().join(format!("{name}-{seed}")),
        plan,
        rounds: 2,
        fsck_every: 5,
        again_every: 6,
        store: StoreAt::Inside,
        object: false,
        busy: false,
        slow: false,
        beside: false,
        room: None,
    }
}

fn report(name: &str, seed: u64, outcome: &Outcome) -> usize {
    say(&format!(
        "{name}, seed {seed}: {} operations, {} points, {} crashes, {} opens served by the kernel",
        outcome.operations, outcome.points, outcome.crashes, outcome.beside
    ));
    for finding in &outcome.findings {
        say(&format!("  {}", finding.crash));
        finding.told.iter().take(5).for_each(|told| say(&format!("    {told}")));
    }
    outcome.findings.len()
}

/// Panics where crashes broke a promise, and keeps what they left.
fn verdict(place: Place, crashes: u64, broken: usize) {
    if broken > 0 {
        panic!("{broken} of {crashes} crashes broke a promise; see {}", place.keep().display());
    }
    say(&format!("{crashes} passed"));
}

/// `lives` lives of the small file system with 25 power cuts each, and `kills` lives that end by `kill -9`.
fn crash_model(lives: u64, kills: u64) -> Result<(), Trouble> {
    let place = Place::new("model")?;
    let (mut crashes, mut broken) = (0, 0);
    for seed in 1..=lives {
        let (name, rules) = if seed % 2 == 0 { ("ordered", ORDERED) } else { ("strict", STRICT) };
        let outcome = life(Path::new(MODEL), &place, name, seed).power(25, rules)?;
        crashes += outcome.crashes;
        broken += report(name, seed, &outcome);
    }
    for seed in 1..=kills {
        let outcome = life(Path::new(MODEL), &place, "kill", 1000 + seed).kill()?;
        crashes += outcome.crashes;
        broken += report("kill", 1000 + seed, &outcome);
    }
    assert_eq!(crashes, lives * 25 + kills);
    verdict(place, crashes, broken);
    Ok(())
}

/// A life of the product: all operations; `busy` with upkeep all the time. Every other one keeps to `/dev/fuse`; the rest have their requests over
/// io_uring where the system lets them. In some, files are open for reading by the kernel itself while they are changed.
fn product_life(binary: &Path, place: &Place, seed: u64, store: StoreAt, object: bool, busy: bool) -> Life {
    let name = format!("{store:?}{}{}", if object { "-object" } else { "" }, if busy { "-busy" } else { "" });
    let mut own = life(binary, place, &name.to_lowercase(), seed);
    own.plan.rich = true;
    (own.store, own.object, own.busy) = (store, object, busy);
    let transport = if seed.is_multiple_of(2) { "dev_fuse" } else { "auto" };
    own.program.mount_options.push(format!("transport={transport}"));
    own.beside = seed == 5 || seed % 7 == 2;
    if own.beside {
        own.program.mount_options.push("passthrough_size=64MiB,passthrough_min=4096".to_owned());
    }
    own
}

/// What a part of the campaign came to.
#[derive(Default)]
struct Sum {
    crashes: u64,
    broken: usize,
    /// Opens that the kernel served by itself.
    beside: u64,
}

impl Sum {
    fn add(&mut self, name: &str, seed: u64, outcome: &Outcome) {
        self.crashes += outcome.crashes;
        self.beside += outcome.beside;
        self.broken += report(name, seed, outcome);
    }
}

/// 25 power cuts in each of six configurations.
fn power_cuts(binary: &Path, place: &Place, sum: &mut Sum) -> Result<(), Trouble> {
    let lives = [
        (1, StoreAt::Inside, false, false, STRICT),
        (2, StoreAt::Inside, false, true, ORDERED),
        (3, StoreAt::Apart, true, false, STRICT),
        (4, StoreAt::Beside, true, true, ORDERED),
        (5, StoreAt::Apart, false, true, STRICT),
    ];
    for (seed, store, object, busy, rules) in lives {
        let mut own = product_life(binary, place, seed, store, object, busy);
        own.slow = object && !busy;
        let outcome = own.power(25, rules)?;
        sum.add(&own.place.display().to_string(), seed, &outcome);
    }
    let mut own = product_life(binary, place, 6, StoreAt::Apart, true, false);
    own.plan.threads = 2;
    sum.add("two machines", 6, &own.pair(25, STRICT)?);
    Ok(())
}

/// Lives that end by `kill -9`, one in three with the loss of the machine or not.
fn kills(binary: &Path, place: &Place, count: u64, sum: &mut Sum) -> Result<(), Trouble> {
    for seed in 1001..=1000 + count {
        let (store, object) = match seed % 6 {
            0 => (StoreAt::Beside, true),
            1 => (StoreAt::Beside, false),
            _ => (StoreAt::Inside, false),
        };
        let mut own = product_life(binary, place, seed, store, object, seed % 5 == 0);
        own.plan.steps = 15;
        sum.add("kill", seed, &own.kill()?);
    }
    Ok(())
}

/// The product, or none where it was not asked for and is not there.
fn product() -> Option<PathBuf> {
    let asked = std::env::var_os("FOREBAY_BIN").map(PathBuf::from);
    let binary = asked.clone().unwrap_or_else(|| built().join("forebay"));
    if asked.is_none() && !speaks(&binary) {
        say(&format!("skipped: there is no working {}; build it, or set FOREBAY_BIN", binary.display()));
        return None;
    }
    Some(binary)
}

#[test]
fn forebay_keeps_its_promise() -> Result<(), Trouble> {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(binary) = product() else { return Ok(()) };
    let place = Place::new("power")?;
    let mut sum = Sum::default();
    power_cuts(&binary, &place, &mut sum)?;
    kills(&binary, &place, 50, &mut sum)?;
    assert_eq!(sum.crashes, 200);
    say(&format!("the kernel served {} opens by itself meanwhile", sum.beside));
    assert!(sum.beside > 0, "the kernel read no file by itself in any life");
    verdict(place, sum.crashes, sum.broken);
    Ok(())
}

/// The tests above can fail: with one sync of the journal, or the upload that an `fsync` waits for, left out, they do.
#[test]
fn what_forebay_leaves_out_is_found() -> Result<(), Trouble> {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(binary) = product() else { return Ok(()) };
    let place = Place::new("forebay-left-out")?;
    for (point, store, object) in
        [("journal.data", StoreAt::Inside, false), ("bucket.chunk", StoreAt::Apart, true)]
    {
        let mut found = None;
        for seed in 1..=8 {
            let mut own = product_life(&binary, &place, seed, store, object, false);
            own.place = place.path().join(format!("{point}-{seed}"));
            own.rounds = 1;
            own.program.environment.push(("FOREBAY_SKIP_SYNC".to_owned(), point.to_owned()));
            found = own.power(6, STRICT)?.findings.into_iter().next();
            if found.is_some() {
                break;
            }
        }
        let told = found.and_then(|finding| finding.told.into_iter().next());
        assert!(told.is_some(), "nothing was found with {point} left out");
        say(&format!("without {point}: {}", told.unwrap_or_default()));
    }
    Ok(())
}

/// What `create` and a recovery have made is there after a cut right after they said so, with the name of its directory.
#[test]
fn a_new_volume_is_there_once_that_was_said() -> Result<(), Trouble> {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(binary) = product() else { return Ok(()) };
    let place = Place::new("new")?;
    let program = life(&binary, &place, "new", 1).program;
    let root = place.path().join("disk");
    std::fs::create_dir_all(&root).map_err(Trouble::io("create directory", &root))?;
    let layer = Layer::mount(Arc::new(Disk::default()), &root).map_err(Trouble::io("mount on", &root))?;
    program.create(&root.join("made"), Some(&root.join("bucket")))?;
    let made = layer.disk().points();
    program.recover(&root.join("recovered"), &root.join("bucket"), None)?;
    let recovered = layer.disk().points();
    let log = layer.disk().log();
    layer.unmount().map_err(Trouble::io("unmount", &root))?;
    for (point, name, others) in [(made, "made", &[][..]), (recovered, "recovered", &["made"])] {
        let images = (0..20).map(|seed| Cutter::new(&log, STRICT).image(point, &mut Rng::new(seed)));
        let lost = images.filter(|image| !image.has_name(&format!("{name}/forebay.volume"))).count();
        assert_eq!(lost, 0, "of 20 cuts so many left no volume '{name}'");
        let image = Cutter::new(&log, STRICT).image(point, &mut Rng::new(20));
        image.write_to(&root).map_err(Trouble::io("lay out an image in", &root))?;
        program.fsck(&root.join(name))?;
        for dir in ["bucket", name].iter().chain(others) {
            let dir = root.join(dir);
            std::fs::remove_dir_all(&dir).map_err(Trouble::io("remove", &dir))?;
        }
    }
    Ok(())
}

/// Whether the binary knows its commands: an early build may have none.
fn speaks(binary: &Path) -> bool {
    let told = std::process::Command::new(binary).args(["create", "--help"]).output();
    told.is_ok_and(|told| told.status.success() && !told.stdout.is_empty())
}

#[test]
fn a_file_system_that_is_right_passes() -> Result<(), Trouble> {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    crash_model(2, 4)
}

#[test]
fn a_sync_left_out_is_found() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let place = Place::new("left-out").unwrap();
    for point in ["create", "journal"] {
        let found = (1..=8).find_map(|seed| {
            let mut life = life(Path::new(MODEL), &place, point, seed);
            life.program.environment.push(("FOREBAY_SKIP_SYNC".to_owned(), point.to_owned()));
            life.power(10, STRICT).unwrap().findings.into_iter().next()
        });
        let told = found.and_then(|finding| finding.told.into_iter().next());
        assert!(told.is_some(), "nothing was found with the sync of {point} left out");
        say(&format!("without the sync of {point}: {}", told.unwrap_or_default()));
    }
}
