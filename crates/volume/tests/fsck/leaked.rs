//! Collecting leaked objects does not take from repair what repair needs.

use forebay_format::key::Key;
use forebay_volume::fsck::{FsckOptions, repair};

use crate::{
    plant::Rows,
    volumes::{full, looked_at, open},
};

#[test]
fn an_object_of_which_the_rows_were_lost_is_kept_for_repair() {
    let (_dir, root) = full();
    let place = {
        let rows = Rows::of(&root);
        let object = rows.segment(rows.segment_of("big")).object.unwrap();
        let place = rows.place_of(&root, "big");
        let mut inside = ["big", "many", "dir/single"].map(|path| rows.segment_of(path)).to_vec();
        inside.sort_unstable();
        inside.dedup();
        for id in inside.into_iter().filter(|id| rows.segment(*id).object == Some(object)) {
            rows.set(Key::Segment(id).encode(), None);
        }
        place
    };
    let before = std::fs::read(&place).unwrap();
    let volume = open(&root);
    let collected = volume.collect_leaked().unwrap();
    assert!(collected.objects == 1 && collected.kept == 1, "{collected:?}");
    drop(volume);
    assert_eq!(std::fs::read(&place).unwrap(), before);
    repair(&root, &FsckOptions::default(), &mut |_| {}).unwrap();
    assert_eq!(looked_at(&root).codes(), Vec::<&str>::new());
}
