use crate::world::Bucket;
use forebay_types::{Durability, Encryption};
#[test]
fn opens() {
    let mut bucket = Bucket::new(1);
    let _ = bucket.create(Durability::Object, Encryption::None);
}
