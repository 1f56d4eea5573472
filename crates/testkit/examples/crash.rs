//! Crash tests by hand, as many as there is time for.
//!
//! ```text
//! crash power   BIN SEED LIVES THREADS POINTS [WORD...] [-- CREATE OPTIONS]
//! crash kill    BIN SEED KILLS THREADS        [WORD...] [-- CREATE OPTIONS]
//! crash pair    BIN SEED LIVES THREADS POINTS [WORD...] [-- CREATE OPTIONS]
//! crash removal BIN SEED LIVES THREADS POINTS [WORD...] [-- CREATE OPTIONS]
//! ```
//!
//! Words: `strict` or `ordered`, how names become durable; `beside` or `apart`, a store in another directory of the same disk or on another
//! disk; `object`, the class; `busy`, with `gc` all the time; `slow`, a store whose syncs take 20 ms; `deep`, up to
//! three more cuts after each; `full`, on a disk
//! that becomes full; `auto`, `io_uring` or `dev_fuse`, the transport of each mount (else as it is without the option).
//!
//! `power`: LIVES lives from SEED on, the power cut at POINTS points of each. `kill`: KILLS lives that end by `kill -9`.
//! `pair`: two machines, of which one takes the volume over from the other. `removal`: for each place where BIN syncs, up to LIVES lives with that sync left out; each must break a promise. Exits with 1
//! when a promise was broken (or, for `removal`, was not). Everything lies below `$FOREBAY_CRASH_DIR`, else in `/dev/shm` or
//! the directory for temporary files; what broke the promise stays there.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use forebay_testkit::power::campaign::{Finding, Life, Outcome, StoreAt, removal};
use forebay_testkit::power::cut::{Fill, Names, Rules};
use forebay_testkit::power::daemon::Program;
use forebay_testkit::power::place::Place;
use forebay_testkit::power::workload::Plan;

type Failure = Box<dyn std::error::Error>;

/// Bytes for which a disk that becomes full has room: two files of the journal and a little more.
const FULL: u64 = 72 << 20;

/// Words that stand for the mount option `transport`.
const TRANSPORTS: [&str; 3] = ["auto", "io_uring", "dev_fuse"];

const USAGE: &str = "usage: crash power|pair|kill|removal BIN SEED LIVES THREADS [POINTS] [strict|ordered|beside|apart|object|busy|slow|deep|full|auto|io_uring|dev_fuse ...] [-- CREATE OPTIONS]";

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            drop(writeln!(io::stderr(), "crash: {error}"));
            ExitCode::from(2)
        }
    }
}

struct Arguments {
    mode: String,
    binary: PathBuf,
    seed: u64,
    lives: u64,
    threads: u16,
    points: u64,
    names: Names,
    store: StoreAt,
    object: bool,
    busy: bool,
    slow: bool,
    deep: bool,
    room: Option<u64>,
    create_options: Vec<String>,
    mount_options: Vec<String>,
}

fn arguments() -> Result<Arguments, Failure> {
    let mut own: Vec<String> = std::env::args().skip(1).collect();
    let split = own.iter().position(|arg| arg == "--").unwrap_or(own.len());
    let create_options = own.split_off(split).into_iter().skip(1).collect();
    let at = |place: usize| own.get(place).ok_or(USAGE);
    let number = |place: usize| -> Result<u64, Failure> {
        at(place)?.parse().map_err(|_| format!("argument {} is no number; {USAGE}", place + 1).into())
    };
    let mode = at(0)?.clone();
    let (points, words) = if mode == "kill" { (0, 5) } else { (number(5)?, 6) };
    let words = own.get(words..).unwrap_or_default();
    let transport = |word: &&String| TRANSPORTS.contains(&word.as_str());
    let known = ["strict", "ordered", "beside", "apart", "object", "busy", "slow", "deep", "full"];
    if let Some(unknown) = words.iter().find(|word| !known.contains(&word.as_str()) && !transport(word)) {
        return Err(format!("'{unknown}' is no word that is known here; {USAGE}").into());
    }
    let has = |word: &str| words.iter().any(|own| own == word);
    let store = match (has("beside"), has("apart")) {
        (_, true) => StoreAt::Apart,
        (true, _) => StoreAt::Beside,
        _ => StoreAt::Inside,
    };
    Ok(Arguments {
        mode,
        binary: at(1)?.into(),
        seed: number(2)?,
        lives: number(3)?,
        threads: u16::try_from(number(4)?)?.max(1),
        points,
        names: if has("ordered") { Names::Ordered } else { Names::Strict },
        store,
        object: has("object"),
        busy: has("busy"),
        slow: has("slow"),
        deep: has("deep"),
        room: has("full").then_some(FULL),
        create_options,
        mount_options: words.iter().filter(transport).map(|word| format!("transport={word}")).collect(),
    })
}

fn run() -> Result<bool, Failure> {
    let arguments = arguments()?;
    let place = Place::new("crash")?;
    let rules = Rules { names: arguments.names, fill: Fill::ZerosOrNoise };
    let life = Life {
        program: Program {
            binary: arguments.binary.clone(),
            create_options: arguments.create_options.clone(),
            mount_options: arguments.mount_options.clone(),
            environment: Vec::new(),
            output: place.path().join("output"),
        },
        place: place.path().to_owned(),
        plan: Plan {
            seed: arguments.seed,
            threads: arguments.threads,
            steps: 40,
            stream_bytes: 12 << 20,
            rich: true,
        },
        rounds: 3,
        fsck_every: 10,
        again_every: if arguments.deep { 1 } else { 6 },
        store: arguments.store,
        object: arguments.object,
        busy: arguments.busy,
        slow: arguments.slow,
        beside: arguments.mount_options.iter().any(|options| options.contains("passthrough_size")),
        room: arguments.room,
    };
    let good = match arguments.mode.as_str() {
        "removal" => every_sync_is_needed(&life, &arguments, rules)?,
        _ => survive(&life, &arguments, rules)?,
    };
    if !good {
        writeln!(io::stdout(), "kept in {}", place.keep().display())?;
    }
    Ok(good)
}

fn survive(life: &Life, arguments: &Arguments, rules: Rules) -> Result<bool, Failure> {
    let mut out = io::stdout();
    let (mut crashes, mut broken) = (0, 0);
    for nth in 0..arguments.lives {
        let mut own = life.clone();
        own.plan.seed = arguments.seed + nth;
        own.place = life.place.join(format!("life-{nth}"));
        let outcome: Outcome = match arguments.mode.as_str() {
            "kill" => own.kill()?,
            "pair" => {
                (own.store, own.object) = (StoreAt::Apart, true);
                own.pair(arguments.points, rules)?
            }
            _ => own.power(arguments.points, rules)?,
        };
        crashes += outcome.crashes;
        broken += outcome.findings.len();
        writeln!(
            out,
            "seed {}: {} operations, {} points, {} crashes, {} broke a promise",
            own.plan.seed,
            outcome.operations,
            outcome.points,
            outcome.crashes,
            outcome.findings.len()
        )?;
        for finding in &outcome.findings {
            print_finding(&mut out, finding)?;
        }
        if outcome.findings.is_empty() {
            std::fs::remove_dir_all(&own.place)?;
        }
    }
    writeln!(out, "{} passed, {broken} failed", crashes.saturating_sub(broken as u64))?;
    Ok(broken == 0)
}

fn print_finding(out: &mut impl Write, finding: &Finding) -> io::Result<()> {
    writeln!(out, "  {}", finding.crash)?;
    finding.told.iter().try_for_each(|told| writeln!(out, "    {told}"))
}

fn every_sync_is_needed(life: &Life, arguments: &Arguments, rules: Rules) -> Result<bool, Failure> {
    let mut out = io::stdout();
    writeln!(out, "{:<28} {:<9} how it showed", "sync left out", "found")?;
    let all = removal(std::slice::from_ref(life), arguments.lives, arguments.points, rules, |removal| {
        let how = removal.finding.as_ref().map_or(String::new(), |finding| {
            format!("{}: {}", finding.crash, finding.told.first().map_or("", String::as_str))
        });
        let found = if removal.finding.is_some() { "yes" } else { "NO" };
        drop(writeln!(out, "{:<28} {found:<9} {how}", removal.name));
    })?;
    Ok(all.iter().all(|removal| removal.finding.is_some()))
}
