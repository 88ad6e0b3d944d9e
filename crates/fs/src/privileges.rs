//! What a file loses when it is changed by who may not decide about it.

use crate::{Change, Fs, FsError, Kind};
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
        if node.kind == Kind::Directory {
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
