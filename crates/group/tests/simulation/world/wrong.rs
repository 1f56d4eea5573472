//! What goes wrong with processes, links and disks.

use forebay_group::MemberId;
use rand::RngExt;

use super::{Event, MEMBERS, MILLISECOND, SECOND, World, new_disk};
use crate::{
    client::Client,
    engine::{Key, Value},
    faults::Fault,
    member::Member,
    messages::Node,
    meta::Meta,
    promise,
};

impl World {
    /// A drained member's disk is taken out, and a new one put in.
    pub(super) fn removed(&mut self, id: MemberId) {
        self.wish = None;
        self.counts.removed += 1;
        let at = usize::from(id.0[0]);
        if self.members[at].disk.id == id {
            // All that it has is given up by that. A fence of what it never had may have come late: that is nothing. Nor is a copy that was of no use any more, and is
            // there again since its drop was not synced when the member died.
            let offers = self.members[at].log.offers();
            let had = offers.iter().filter(|offer| offer.end > 0);
            let lost: Vec<_> = had.filter_map(|offer| promise::drops(self, id, offer.segment)).collect();
            self.violations.extend(lost.into_iter().map(|what| format!("removed: {what}")));
            self.replace_disk(at);
        }
    }

    /// Sooner or later a disk that was given up is taken out, and a new one put in. Till then it speaks.
    pub(super) fn take_out_what_was_given_up(&mut self) {
        for at in 0..MEMBERS {
            if promise::is_given_up(&self.rows, self.members[at].disk.id) && self.rng.random_bool(0.1) {
                self.replace_disk(at);
            }
        }
    }

    pub(super) fn replace_disk(&mut self, at: usize) {
        self.disks += 1;
        let life = self.next_life(Node::Member(at));
        self.members[at] = Member::new(at, life, new_disk(at, self.disks));
    }

    fn next_life(&mut self, node: Node) -> u64 {
        let condition = self.conditions.get_mut(&node).expect("every node has one");
        condition.life += 1;
        condition.paused_until = 0;
        condition.life
    }

    pub(super) fn go_wrong(&mut self, fault: Fault) {
        if self.tell {
            println!("{:>12} {fault:?}", self.now);
        }
        let now = self.now;
        match fault {
            Fault::Crash(node) => {
                let life = self.next_life(node);
                match node {
                    Node::Meta(at) => self.metas[at] = Meta::new(at),
                    Node::Client(at) => self.clients[at] = Client::new(at, life, self.local && at == 0),
                    Node::Member(at) => {
                        let survive = self.rng.random_range(0..=self.members[at].unsynced());
                        let disk = self.members[at].torn(survive);
                        self.members[at] = Member::new(at, life, disk);
                    }
                    Node::Store => {}
                }
            }
            Fault::Pause(node, long) => {
                self.conditions.get_mut(&node).expect("every node has one").paused_until = now + long;
            }
            Fault::Isolate(node, long) => {
                self.conditions.get_mut(&node).expect("every node has one").isolated_until = now + long;
            }
            Fault::Cut(one, other, long) => self.cuts.push((one, other, now + long)),
            Fault::EngineAway(long) => self.engine_away_until = now + long,
            Fault::StoreAway(long) => self.store_away_until = now + long,
            Fault::LoseDisk(at) => {
                let id = self.members[at].disk.id;
                if promise::may_lose(self, id) && self.wish != Some(id) {
                    self.lost.insert(id);
                    self.counts.lost_disks += 1;
                    self.replace_disk(at);
                }
            }
            Fault::Burn(at) => {
                let id = self.members[at].disk.id;
                if self.careless && self.wish != Some(id) {
                    self.lost.insert(id);
                    self.counts.lost_disks += 1;
                    self.replace_disk(at);
                }
            }
            Fault::HalfWay(at, client, long) => {
                let long = 15 * SECOND + long;
                self.go_wrong(Fault::Isolate(Node::Member(at), long));
                self.go_wrong(Fault::StoreAway(long));
                let delay = self.rng.random_range(100 * MILLISECOND..1_200 * MILLISECOND);
                self.at(delay, Event::Follows(Fault::Crash(Node::Client(client))));
            }
            Fault::Mistake(at, long) => {
                let id = self.members[at].disk.id;
                if self.careless && self.wish != Some(id) {
                    self.lost.insert(id);
                    let condition = self.conditions.get_mut(&Node::Member(at)).expect("every node has one");
                    condition.isolated_until = now + long;
                }
            }
            Fault::Drain(at) => {
                let id = self.members[at].disk.id;
                if self.lost.contains(&id) {
                    return;
                }
                let Some(Value::Group(group)) = self.rows.get(&Key::Group) else { return };
                if self.wish.is_none()
                    && group.view.active().len() > 3
                    && group.view.members.contains_key(&id)
                {
                    self.wish = Some(id);
                }
            }
        }
    }
}
