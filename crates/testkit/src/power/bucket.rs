//! What the log of the disk says about a store that lies on it.

use std::collections::HashMap;

use super::log::{Event, Ino, ROOT};

/// The store's directory in the root of the emulated disk.
pub(super) const BUCKET: &str = "bucket";

/// Epoch, first and last record of a piece of the journal in the bucket: pieces of one shipping have all three in common.
type Round = (u64, u64, u64);

/// The point before which everything that was answered is in the bucket after a cut at `point`, synced or not; 0 if that cannot be told.
///
/// A shipping begins after the one before it has ended, and takes along all that was answered before it began. Whether the newest one has all
/// its pieces cannot be told; the one before it has. So what was answered before the last piece of the third newest was put is there. How the product
/// names its pieces is in `docs/design/bucket.md`.
pub(super) fn shipped(log: &[Event], point: u64) -> u64 {
    let mut paths: HashMap<Ino, String> = HashMap::from([(ROOT, String::new())]);
    let mut named: Vec<(Ino, u64, Round)> = Vec::new();
    let mut durable: Vec<(u64, Round)> = Vec::new();
    for (at, event) in (0..point).zip(log) {
        match event {
            Event::Names { born, slots, .. } => {
                for slot in slots {
                    let Some(ino) = slot.new else { continue };
                    let Some(dir) = paths.get(&slot.dir) else { continue };
                    let path = format!("{dir}/{}", String::from_utf8_lossy(&slot.name));
                    if let Some(round) = round(&path) {
                        named.push((slot.dir, at, round));
                    }
                    if born.is_some() {
                        paths.insert(ino, path);
                    }
                }
            }
            Event::SyncDirectory(dir) => {
                let synced = named.iter().filter(|(own, ..)| own == dir);
                durable.extend(synced.map(|(_, at, round)| (*at, *round)));
                named.retain(|(own, ..)| own != dir);
            }
            _ => {}
        }
    }
    durable.sort_unstable_by_key(|(at, _)| *at);
    durable.dedup_by(|later, earlier| {
        let same = later.1 == earlier.1;
        earlier.0 = if same { later.0 } else { earlier.0 };
        same
    });
    durable.iter().nth_back(2).map_or(0, |(last_put, _)| *last_put)
}

fn round(path: &str) -> Option<Round> {
    let (epoch, name) =
        path.strip_prefix('/')?.strip_prefix(BUCKET)?.strip_prefix("/journal/")?.split_once('/')?;
    let hexadecimal = |text: &str| u64::from_str_radix(text, 16).ok();
    let mut parts = name.split('-').skip(1).map(hexadecimal);
    Some((hexadecimal(epoch)?, parts.next()??, parts.next()??))
}

#[cfg(test)]
mod tests {
    use super::super::disk::Disk;
    use super::super::log::Kind;
    use super::*;

    #[test]
    fn what_was_answered_before_a_shipping_that_is_whole_began_is_in_the_bucket() {
        let disk = Disk::default();
        let make = |dir, name: &[u8]| disk.make(dir, name, Kind::Directory, 0o755).unwrap();
        let dir = make(make(make(ROOT, b"bucket"), b"journal"), b"00000001");
        assert_eq!(shipped(&disk.log(), disk.points()), 0);
        let mut put = Vec::new();
        for name in ["00-01-03", "01-01-03", "02-04-05", "03-06-09", "04-06-09"] {
            put.push(disk.points());
            disk.make(dir, name.as_bytes(), Kind::File, 0o600).unwrap();
            disk.sync(dir).unwrap();
        }
        assert_eq!(shipped(&disk.log(), disk.points()), put[1]);
        assert_eq!(
            shipped(&disk.log(), put[4]),
            put[1],
            "the third shipping has begun, so the second is whole"
        );
        assert_eq!(
            shipped(&disk.log(), put[3] + 1),
            0,
            "the third is not durable, so the second may lack pieces"
        );
    }
}
