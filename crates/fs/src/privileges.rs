//! What a file loses when it is changed by who may not decide about it.

use crate::{Change, Fs, FsError, ObjectKind};
use margay_format::Store;

const SET_USER_ID: u16 = 0o4000;
const SET_GROUP_ID: u16 = 0o2000;
const GROUP_EXECUTE: u16 = 0o0010;
/// The extended attribute with the capabilities that a program has when it is run.
const CAPABILITIES: &[u8] = b"security.capability";

impl<D: Store> Fs<D> {
    /// Takes from an object what lends its owner's rights to everybody who runs it: its capabilities, and with `bits` the
    /// set-user-id bit and, if its group may execute it, the set-group-id bit. Directories keep theirs.
    pub fn drop_privileges(&mut self, object: u32, bits: bool) -> Result<(), FsError> {
        let node = self.node(object)?;
        if node.kind == ObjectKind::Directory {
            return Ok(());
        }
        let mut mode = node.mode;
        if bits {
            mode &= !SET_USER_ID;
            if mode & GROUP_EXECUTE != 0 {
                mode &= !SET_GROUP_ID;
            }
        }
        let (is_other_mode, has_capabilities) = (mode != node.mode, node.attributes.contains_key(CAPABILITIES));
        if is_other_mode {
            self.change(object, &Change { mode: Some(mode), ..Change::default() })?;
        }
        if has_capabilities { self.remove_attribute(object, CAPABILITIES) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AllocatorSpec, Headers, NewObject, ROOT, Time};
    use margay_flash::Geometry;
    use margay_format::Plain;
    use margay_log::{Config, Policies};
    use margay_media::RamFlash;
    use margay_policy::{SelectionSpec, Sizing};

    fn files() -> Fs<Plain<RamFlash>> {
        let geometry = Geometry::new(16, 16, 512).unwrap();
        let config = Config::default();
        let data_pages = config.data_pages(&geometry);
        let sizing = Sizing { segments: 16, data_pages, exported_pages: 128, seed: 0 };
        let allocator = AllocatorSpec::known("predictive");
        let policies = Policies::for_files(SelectionSpec::default(), allocator, sizing);
        Fs::volatile(Plain::new(RamFlash::new(geometry)), config, policies, Headers::Packed, false).unwrap()
    }

    #[test]
    fn capabilities_go_with_every_change_and_set_id_bits_if_asked() {
        let mut fs = files();
        let new = NewObject { mode: 0o6755, ..NewObject::FILE };
        let file = fs.create(ROOT, b"f", &new).unwrap().object;
        fs.set_attribute(file, CAPABILITIES, b"all").unwrap();
        fs.set_attribute(file, b"user.a", b"1").unwrap();
        fs.drop_privileges(file, false).unwrap();
        assert_eq!(fs.attributes(file).unwrap().mode, 0o6755);
        assert_eq!(fs.get_attribute(file, CAPABILITIES), Err(FsError::NoAttribute));
        fs.drop_privileges(file, true).unwrap();
        assert_eq!((fs.attributes(file).unwrap().mode, fs.get_attribute(file, b"user.a")), (0o755, Ok(&b"1"[..])));
    }

    #[test]
    fn directories_and_groups_that_may_not_execute_keep_the_set_group_id_bit() {
        let mut fs = files();
        let folder = fs.create(ROOT, b"d", &NewObject { mode: 0o2775, ..NewObject::DIRECTORY }).unwrap().object;
        let file = fs.create(ROOT, b"f", &NewObject { mode: 0o6764, ..NewObject::FILE }).unwrap().object;
        for object in [folder, file] {
            fs.drop_privileges(object, true).unwrap();
        }
        assert_eq!([folder, file].map(|object| fs.attributes(object).unwrap().mode), [0o2775, 0o2764]);
    }

    #[test]
    fn a_change_happens_now_unless_it_says_when() {
        let mut fs = files();
        let file = fs.create(ROOT, b"f", &NewObject::FILE).unwrap().object;
        let (now, then) = (Time { secs: 100, nanos: 0 }, Time { secs: 50, nanos: 7 });
        fs.set_time(now);
        assert_eq!(fs.change(file, &Change { mtime: Some(then), ..Change::default() }).unwrap().ctime, now);
        let change = Change { mtime: Some(then), ctime: Some(then), ..Change::default() };
        let found = fs.change(file, &change).unwrap();
        assert_eq!((found.mtime, found.ctime), (then, then));
    }

    #[test]
    fn bytes_that_wait_in_memory_take_a_page() {
        let mut fs = files();
        let file = fs.create(ROOT, b"f", &NewObject::FILE).unwrap().object;
        for (bytes, pages) in [(100, 1), (512, 2), (100, 2)] {
            let size = fs.attributes(file).unwrap().size;
            fs.write(file, size, &[1; 512][..bytes]).unwrap();
            assert_eq!(fs.attributes(file).unwrap().pages, pages);
        }
        let waiting = fs.attributes(file).unwrap().pages;
        fs.commit().unwrap();
        assert_eq!(fs.attributes(file).unwrap().pages, waiting);
    }

    #[test]
    fn kinds_are_those_of_the_list_of_names() {
        let mut fs = files();
        let file = fs.create(ROOT, b"f", &NewObject::FILE).unwrap().object;
        fs.create(ROOT, b"d", &NewObject::DIRECTORY).unwrap();
        fs.link(file, ROOT, b"another").unwrap();
        let listed = fs.list(ROOT).unwrap();
        let wanted = listed.iter().map(|(name, attributes)| (&**name, attributes.object, attributes.kind));
        assert!(fs.kinds(ROOT).unwrap().eq(wanted));
        assert_eq!(fs.kinds(file).err(), Some(FsError::NotADirectory));
    }
}
