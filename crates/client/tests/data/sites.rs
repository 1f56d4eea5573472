//! Random steps over two groups: which one is chosen, who fails, what may be in which, and how many groups are known change while files are written. Nothing settled is in a group that may
//! not have it, and all of it is there in the end.

use std::sync::Arc;

use bytes::Bytes;
use forebay_client::{Appended, ContentsOptions, MemberFailed, Members, Within, WriteGroup};
use forebay_group::{Append, GroupId, MemberId};
use forebay_meta::{PieceSource, SetAttr};
use forebay_protocol::{Bounds, SealedSegment};
use forebay_types::{Ino, PolicyId, SegmentId, SyncClass};
use parking_lot::Mutex;

use crate::{
    fleet::{Fault, Fleet},
    owner::{HasCopies, V},
    world::{Client, Random, World},
};

const GROUPS: [GroupId; 2] = [GroupId([1; 16]), GroupId([2; 16])];
const FILES: usize = 4;
const STEPS: usize = 150;
/// Members of each group; those of the second have numbers from 11 on.
const MEMBERS: u8 = 3;

/// Two groups of members in memory, and what a mount makes of them.
#[derive(Debug)]
struct Sites {
    fleets: [Arc<Fleet>; 2],
    /// How many of them are known, and which one is chosen, if one is.
    state: Mutex<(usize, Option<usize>)>,
}

impl Sites {
    fn fleet(&self, set: &[MemberId]) -> &Arc<Fleet> {
        let at = usize::from(set.iter().all(|member| member.0[0] > 10));
        assert!(set.iter().all(|member| usize::from(member.0[0] > 10) == at), "a set of two groups: {set:?}");
        &self.fleets[at]
    }
}

impl Members for Sites {
    fn groups(&self) -> Arc<[GroupId]> {
        GROUPS[..self.state.lock().0].into()
    }

    fn within(&self, bounds: &Bounds) -> Within {
        let (known, chosen) = *self.state.lock();
        let may = |at: &usize| bounds.groups.contains(&GROUPS[*at]);
        if bounds.here && (0..known).all(|at| may(&at)) {
            return Within::Any;
        }
        let nearest = chosen.filter(may).or_else(|| (0..known).find(may));
        nearest.map_or(Within::Nowhere, |at| Within::Group(GROUPS[at]))
    }

    fn writes_over(&self, within: Within) -> Option<WriteGroup> {
        let at = match within {
            Within::Any => self.state.lock().1?,
            Within::Group(id) => GROUPS.iter().position(|group| *group == id)?,
            Within::Nowhere => return None,
        };
        let over = self.fleets[at].writes_over(Within::Any)?;
        Some(WriteGroup { group: GROUPS[at], ..over })
    }

    fn append(&self, set: &[MemberId], append: &Append) -> Vec<Result<Appended, MemberFailed>> {
        self.fleet(set).append(set, append)
    }

    fn seal(&self, set: &[MemberId], sealed: &SealedSegment) {
        self.fleet(set).seal(set, sealed);
    }

    fn read(
        &self,
        set: &[MemberId],
        segment: SegmentId,
        offset: u64,
        len: u32,
    ) -> Result<Bytes, MemberFailed> {
        self.fleet(set).read(set, segment, offset, len)
    }
}

impl HasCopies for Sites {
    fn assert_has(&self, set: &[MemberId], segment: SegmentId, end: u64) {
        self.fleet(set).assert_has(set, segment, end);
    }
}

struct Run {
    world: World,
    sites: Arc<Sites>,
    client: Client,
    random: Random,
    inos: Vec<Ino>,
    models: Vec<Vec<u8>>,
    /// In which groups each file may be; `None`: nothing is said of it.
    bounds: Vec<Option<Bounds>>,
    trace: Vec<String>,
}

impl Run {
    fn new(seed: u64) -> Run {
        let world = World::new();
        let fleets = [Fleet::numbered(1..=MEMBERS), Fleet::numbered(11..=10 + MEMBERS)];
        let sites = Arc::new(Sites { fleets, state: Mutex::new((2, Some(0))) });
        *world.owner.fleet.lock() = Some(Arc::clone(&sites) as Arc<dyn HasCopies>);
        let members = Some(Arc::clone(&sites) as Arc<dyn Members>);
        let client = world.client_with(ContentsOptions { members, ..world.options() });
        let inos = (0..FILES).map(|_| world.make()).collect();
        let (models, bounds) = (vec![Vec::new(); FILES], vec![None; FILES]);
        Run { world, sites, client, random: Random(seed), inos, models, bounds, trace: Vec::new() }
    }

    /// What is said of a file changes; all of it is written anew, as what was handed over before may be where it was to be then.
    fn set_bounds(&mut self, file: usize) {
        let groups: Vec<GroupId> = GROUPS.into_iter().filter(|_| self.random.below(2) == 0).collect();
        let here = groups.len() == 2 && self.random.below(2) == 0;
        self.trace.push(format!("bounds {file} {here} {groups:?}"));
        let (ino, policy) = (self.inos[file], PolicyId(1 + file as u64));
        let bounds = Bounds { here, groups };
        self.world.owner.set_policy(ino, policy, SyncClass::Replica(2));
        self.world.owner.bounds.lock().insert(policy, bounds.clone());
        self.client.set_attr(ino, &SetAttr { size: Some(0), ..SetAttr::default() });
        if self.random.below(2) == 0 {
            self.client.forget(ino);
        }
        self.models[file].clear();
        self.bounds[file] = Some(bounds);
    }

    fn write(&mut self, file: usize) {
        let said = self.client.write_random(&mut self.random, self.inos[file], &mut self.models[file]);
        self.trace.push(format!("write {file} {said}"));
    }

    /// A member stops answering, or answers again.
    fn harm(&mut self) {
        let (site, member) = (self.random.below(2) as usize, 1 + self.random.below(u64::from(MEMBERS)) as u8);
        let fault = [None, None, Some(Fault::Refuses), Some(Fault::Mute)][self.random.below(4) as usize];
        let number = member + 10 * site as u8;
        self.trace.push(format!("member {number} {fault:?}"));
        self.sites.fleets[site].set_fault(number, fault);
    }

    /// Another group is gone by, or none.
    fn choose(&mut self) {
        let known = self.sites.state.lock().0 as u64;
        let at = self.random.below(known + 1);
        let chosen = (at < known).then_some(at as usize);
        self.trace.push(format!("choose {chosen:?}"));
        self.sites.state.lock().1 = chosen;
    }

    fn check(&self, file: usize) -> Result<(), String> {
        let Some(bounds) = &self.bounds[file] else { return Ok(()) };
        let pieces = self.world.owner.ns.map(V, self.inos[file], 0, 1 << 30).unwrap();
        for piece in &pieces {
            let PieceSource::Extent(extent) = &piece.source else { continue };
            if let Some(group) = self.world.owner.alone_over(extent.segment)
                && !bounds.groups.contains(&group)
            {
                let trace = self.trace.join("\n");
                return Err(format!("file {file} is over {group} and may be in {bounds:?}\n{trace}"));
            }
        }
        Ok(())
    }

    fn all(mut self) -> Result<(), String> {
        for _ in 0..STEPS {
            let file = self.random.below(FILES as u64) as usize;
            match self.random.below(16) {
                0 => self.set_bounds(file),
                1 => self.harm(),
                2 | 3 => self.choose(),
                4 => {
                    self.trace.push("sync all".to_owned());
                    self.client.contents.settle_all().unwrap();
                    (0..FILES).try_for_each(|file| self.check(file))?;
                }
                5..=7 => {
                    self.trace.push(format!("sync {file}"));
                    self.client.settle(self.inos[file]);
                    self.check(file)?;
                }
                _ => self.write(file),
            }
        }
        self.client.contents.settle_all().unwrap();
        for number in 1..=MEMBERS {
            self.sites.fleets[0].set_fault(number, None);
            self.sites.fleets[1].set_fault(number + 10, None);
        }
        for (file, (ino, model)) in self.inos.iter().zip(&self.models).enumerate() {
            self.check(file)?;
            self.client.forget(*ino);
            if self.client.read_all(*ino) != *model {
                return Err(format!("file {file} differs in the end\n{}", self.trace.join("\n")));
            }
        }
        self.world.assert_accounted_for();
        Ok(())
    }
}

#[test]
fn nothing_is_in_a_group_that_may_not_have_it() {
    let seeds: u64 = std::env::var("FOREBAY_SEEDS").map_or(40, |seeds| seeds.parse().unwrap());
    for seed in 0..seeds {
        if let Err(wrong) = Run::new(seed).all() {
            panic!("seed {seed}: {wrong}");
        }
    }
}
