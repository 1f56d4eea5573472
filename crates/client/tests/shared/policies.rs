//! Policies, as clients see them in the rows of inodes (`docs/design/policies.md`).

use forebay_protocol::{Answer, PolicyChange, PolicyEdit};
use forebay_types::{Ino, PolicyId, SyncClass};
use forebay_vfs::Files;

use super::world::{Client, World, directory, file};

impl Client {
    fn policy(&self, ino: Ino) -> PolicyId {
        self.volume.inode(ino).unwrap().row.policy
    }
}

#[test]
fn what_is_made_goes_by_the_policy_of_its_directory_ahead_of_the_owner_too() {
    let world = World::new();
    let (one, two) = (world.client("one"), world.client("two"));
    let dir = one.volume.make(Ino::ROOT, b"d", &directory()).unwrap().ino;
    let before = one.volume.make(dir, b"before", &file()).unwrap().ino;
    let owner = world.owner().unwrap();
    let set = |ino, class| {
        let edit = PolicyEdit { durability: Some(class), ..PolicyEdit::default() };
        owner.change_policy(PolicyChange::Set(ino, edit)).unwrap()
    };
    assert_eq!(set(dir, Some(SyncClass::Object)), Answer::Done);
    let policy = owner.policy_of(dir).unwrap().policy;
    assert_ne!(policy, PolicyId::NONE);
    assert_eq!((one.policy(dir), one.policy(before)), (policy, PolicyId::NONE), "its lease was recalled");
    for at in 0..20 {
        let sub = one.volume.make(dir, format!("sub-{at}").as_bytes(), &directory()).unwrap().ino;
        for name in ["one", "two", "three"] {
            let ino = one.volume.make(sub, name.as_bytes(), &file()).unwrap().ino;
            assert_eq!(one.policy(ino), policy, "{at} {name}");
        }
        let found = two.volume.lookup(dir, format!("sub-{at}").as_bytes()).unwrap();
        assert_eq!((one.policy(sub), found.row.policy), (policy, policy), "{at}");
        for name in ["one", "two", "three"] {
            let found = two.volume.lookup(sub, name.as_bytes()).unwrap();
            assert_eq!(found.row.policy, policy, "{at} {name}");
        }
    }
    // What it says changes no inode, so nobody is asked for a lease but on the directory.
    assert_eq!(set(dir, None), Answer::Done);
    let sub = one.volume.lookup(dir, b"sub-7").unwrap().ino;
    assert_eq!((one.policy(sub), owner.policy_of(sub).unwrap().class), (policy, None));
}
