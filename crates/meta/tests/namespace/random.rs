//! Seeded random operations on everything. A failing seed is printed; `FOREBAY_SEED=n` runs that one alone.

use std::sync::Arc;

use forebay_meta::{EmbeddedEngine, Engine, MemoryEngine, Namespace};

use crate::{model::Refusal, world::World};

impl World {
    /// One random operation of an application.
    pub fn operation(&mut self) {
        match self.random.below(46) {
            0..=6 => self.make(),
            7 => self.make_nameless(),
            8..=9 => self.link(),
            10..=12 => self.unlink(),
            13..=16 => self.rename(),
            17..=19 => self.set_attr(),
            20 => self.set_xattr(),
            21 => self.set_atime(),
            22..=23 => self.write_inline(),
            24..=31 => self.write(),
            32..=34 => self.punch(),
            35..=37 => self.share(),
            38 => self.purge(),
            39..=44 => self.take_in(),
            _ => self.refused(),
        }
    }

    /// Nothing happens while the log takes nothing.
    fn refused(&mut self) {
        self.log.state.lock().refuse = true;
        let at = self.subvolume();
        let (parent, name) = (self.directory(at), self.name());
        let got = self.ns.unlink(at, parent, &name, &|_| false).map_err(Refusal::from);
        self.log.state.lock().refuse = false;
        assert_eq!(got, Err(Refusal::Log));
    }

    fn step(&mut self, snapshots: bool) {
        match self.random.below(60) {
            0..=1 => self.checkpoint(),
            2 if self.random.one_in(3) => self.reopen(),
            3..=6 => self.plan_move(),
            7..=10 => self.finish_move(),
            11 => self.seal_and_store(),
            12 => self.forget(),
            13..=14 if snapshots => self.snapshot(),
            15..=16 => self.collect(),
            17..=18 => self.clean(),
            _ => self.operation(),
        }
    }

    /// Gives up all snapshots that no clone needs, and collects everything.
    fn settle(&mut self) {
        while !self.ns.uncleaned().is_empty() {
            self.clean();
        }
        self.check();
        let all: Vec<_> = self.snapshots.keys().copied().collect();
        all.into_iter().for_each(|which| self.drop_snapshot(which));
        let subvolumes: Vec<_> = self.trees.keys().copied().collect();
        for at in subvolumes {
            self.collect_all(at);
        }
        self.forget();
        self.check();
        self.reopen();
        self.check();
    }
}

fn seeds(first: u64, count: u64) -> Vec<u64> {
    match std::env::var("FOREBAY_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => (first..first + count).collect(),
    }
}

fn run(engine: Arc<dyn Engine>, seed: u64, steps: usize, snapshots: bool) {
    let mut world = World::new(engine, seed);
    for step in 0..steps {
        world.step(snapshots);
        if step % 25 == 24 {
            world.check();
        } else if step % 4 == 3 {
            world.check_counts();
        }
    }
    world.settle();
    let stored = world.ns.checkpoint().unwrap().map(|checkpoint| checkpoint.store().unwrap());
    assert!(
        stored.is_none_or(|stored| stored == Namespace::applied(world.engine.as_ref()).unwrap().sequence)
    );
    let rows: Vec<_> = world.engine.scan(&[], None, usize::MAX).unwrap().rows;
    let mirror = world.log.state.lock().rows.clone();
    let versioned = |(key, _): &(Vec<u8>, Vec<u8>)| key[..4] != [0; 4];
    let (left, right): (Vec<_>, Vec<_>) =
        (rows.into_iter().filter(versioned).collect(), mirror.into_iter().filter(versioned).collect());
    assert!(left == right, "the engine has what the records say");
}

#[test]
fn one_tree_as_the_model_says() {
    for seed in seeds(1, 30) {
        println!("seed {seed}");
        run(Arc::new(MemoryEngine::default()), seed, 400, false);
    }
}

#[test]
fn snapshots_and_clones_as_the_model_says() {
    for seed in seeds(1000, 40) {
        println!("seed {seed}");
        run(Arc::new(MemoryEngine::default()), seed, 500, true);
    }
}

#[test]
fn the_same_over_the_embedded_engine() {
    for seed in seeds(5000, 3) {
        println!("seed {seed}");
        let dir = tempfile::tempdir().unwrap();
        run(Arc::new(EmbeddedEngine::open(dir.path()).unwrap()), seed, 300, true);
    }
}
