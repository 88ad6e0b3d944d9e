//! Names: looking up, creating, removing, renaming.

use crate::index::ROOT;
use crate::node::{Attributes, Node, ObjectKind, Time, is_name};
use crate::{Fs, FsError, MAX_NAME_BYTES};
use alloc::boxed::Box;
use alloc::vec::Vec;
use margay_format::Store;

/// The attributes of an object to be created.
#[derive(Clone, Copy, Debug)]
pub struct NewObject<'a> {
    /// What it is.
    pub kind: ObjectKind,
    /// Permission bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number, of devices.
    pub rdev: u32,
    /// What it points to, of symbolic links.
    pub target: &'a [u8],
}

impl NewObject<'_> {
    /// A file that belongs to root and that everybody may read.
    pub const FILE: Self = Self { kind: ObjectKind::File, mode: 0o644, uid: 0, gid: 0, rdev: 0, target: b"" };
    /// A directory that belongs to root and that everybody may read.
    pub const DIRECTORY: Self = Self { kind: ObjectKind::Directory, mode: 0o755, uid: 0, gid: 0, rdev: 0, target: b"" };
}

/// Changes of attributes; `None` leaves an attribute as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Change {
    /// Permission bits.
    pub mode: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Last access.
    pub atime: Option<Time>,
    /// Last modification.
    pub mtime: Option<Time>,
    /// Last change of the object; `None` is now.
    pub ctime: Option<Time>,
}

/// A name in a directory, and the attributes of its object.
pub type Named = (Box<[u8]>, Attributes);

/// Options of [`Fs::rename`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RenameFlags {
    /// Fail if the new name exists, instead of replacing its object.
    pub no_replace: bool,
}

impl<D: Store> Fs<D> {
    fn directory(&self, object: u32) -> Result<&Node, FsError> {
        let node = self.node(object)?;
        if node.kind == ObjectKind::Directory { Ok(node) } else { Err(FsError::NotADirectory) }
    }

    fn check_name(name: &[u8]) -> Result<(), FsError> {
        match name.len() {
            _ if !is_name(name) => Err(FsError::Invalid),
            0..=MAX_NAME_BYTES => Ok(()),
            _ => Err(FsError::NameTooLong),
        }
    }

    /// The object with a name in a directory.
    pub fn lookup(&self, parent: u32, name: &[u8]) -> Result<Attributes, FsError> {
        self.directory(parent)?;
        if name.len() > MAX_NAME_BYTES {
            return Err(FsError::NameTooLong);
        }
        let object = match name {
            b"." => parent,
            b".." => self.node(parent)?.parent,
            _ => self.index.lookup(parent, name).ok_or(FsError::NotFound)?,
        };
        self.attributes(self.index.resolve(object))
    }

    /// The object at a path from the root directory. Symbolic links are not followed.
    pub fn resolve(&self, path: &[u8]) -> Result<Attributes, FsError> {
        let mut at = self.attributes(ROOT)?;
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            at = self.lookup(at.object, name)?;
        }
        Ok(at)
    }

    /// Attributes of an object.
    pub fn attributes(&self, object: u32) -> Result<Attributes, FsError> {
        Ok(self.node(object)?.attributes(object))
    }

    /// Names in a directory with their objects, in the order of their bytes, without `.` and `..`.
    pub fn list(&self, object: u32) -> Result<Vec<Named>, FsError> {
        let children = &self.directory(object)?.children;
        children.iter().map(|(name, child)| Ok((name.clone(), self.attributes(self.index.resolve(*child))?))).collect()
    }

    /// The same with no other attribute than what the objects are.
    pub fn kinds(&self, object: u32) -> Result<impl Iterator<Item = (&[u8], u32, ObjectKind)>, FsError> {
        let children = &self.directory(object)?.children;
        Ok(children.iter().filter_map(|(name, child)| {
            let object = self.index.resolve(*child);
            Some((&**name, object, self.index.node(object)?.kind))
        }))
    }

    /// The parent of a directory; that of the root is the root itself.
    pub fn parent(&self, object: u32) -> Result<u32, FsError> {
        Ok(self.directory(object)?.parent)
    }

    /// What a symbolic link points to.
    pub fn read_link(&self, object: u32) -> Result<&[u8], FsError> {
        let node = self.node(object)?;
        if node.kind == ObjectKind::Symlink { Ok(&node.target) } else { Err(FsError::Invalid) }
    }

    fn new_name(&mut self, parent: u32, name: &[u8]) -> Result<(), FsError> {
        self.begin()?;
        self.directory(parent)?;
        if self.index.lookup(parent, name).is_some() {
            return Err(FsError::Exists);
        }
        Self::check_name(name)?;
        if self.directory(parent)?.orphan {
            return Err(FsError::NotFound);
        }
        self.want_room(2)
    }

    /// Sets the times of a directory whose names have changed.
    fn stamp(&mut self, parent: u32) -> Result<(), FsError> {
        let now = self.time;
        let node = self.node_mut(parent)?;
        (node.mtime, node.ctime) = (now, now);
        if !self.index.single {
            self.times_changed(parent);
        }
        Ok(())
    }

    fn enter(&mut self, parent: u32, name: &[u8], object: u32) -> Result<(), FsError> {
        let is_directory = self.node(object)?.kind == ObjectKind::Directory;
        let node = self.node_mut(parent)?;
        node.children.insert(name.into(), object);
        node.subdirectories += u32::from(is_directory);
        self.stamp(parent)
    }

    fn leave(&mut self, parent: u32, name: &[u8], is_directory: bool) -> Result<(), FsError> {
        let node = self.node_mut(parent)?;
        node.children.remove(name);
        node.subdirectories -= u32::from(is_directory);
        self.stamp(parent)
    }

    fn add(&mut self, mut node: Node) -> Result<u32, FsError> {
        let bytes = crate::header::header_bytes(&node, self.index.page_bytes);
        if bytes > self.index.room_bytes() {
            return Err(FsError::NameTooLong);
        }
        let (parent, name) = (node.parent, node.name.clone());
        node.name = name.clone();
        let object = self.index.add(node).ok_or(FsError::TooMany)?;
        self.enter(parent, &name, object)?;
        Ok(object)
    }

    /// Creates an object.
    pub fn create(&mut self, parent: u32, name: &[u8], new: &NewObject<'_>) -> Result<Attributes, FsError> {
        self.new_name(parent, name)?;
        let mut node = Node::new(new.kind, new.mode & 0o7777, new.uid, new.gid, parent, name, self.time);
        node.target = new.target.into();
        node.rdev = new.rdev;
        self.ready_for_new(&node)?;
        let object = self.add(node)?;
        self.log.placement_mut().file_created(object);
        self.keep_heat(object);
        let page = self.node(object)?.page;
        self.touch(page, false)?;
        self.attributes(object)
    }

    /// Gives an object another name.
    pub fn link(&mut self, object: u32, parent: u32, name: &[u8]) -> Result<Attributes, FsError> {
        self.new_name(parent, name)?;
        let node = self.node(object)?;
        if node.kind == ObjectKind::Directory {
            return Err(FsError::NotPermitted);
        }
        if node.orphan {
            return Err(FsError::NotFound);
        }
        if node.links.len() >= u16::MAX as usize {
            return Err(FsError::TooMany);
        }
        let mut link = Node::new(node.kind, 0, 0, 0, parent, name, self.time);
        link.link_to = Some(object);
        self.ready_for_new(&link)?;
        let id = self.add(link)?;
        let now = self.time;
        let node = self.node_mut(object)?;
        node.links.push(id);
        node.ctime = now;
        self.times_changed(object);
        let page = self.node(id)?.page;
        self.touch(page, false)?;
        self.attributes(object)
    }

    /// Removes a name of an object that is not a directory.
    pub fn unlink(&mut self, parent: u32, name: &[u8]) -> Result<(), FsError> {
        self.begin()?;
        self.directory(parent)?;
        let entry = self.index.lookup(parent, name).ok_or(FsError::NotFound)?;
        if self.node(entry)?.kind == ObjectKind::Directory {
            return Err(FsError::IsADirectory);
        }
        self.ready_to_drop(entry)?;
        self.leave(parent, name, false)?;
        self.drop_entry(entry)
    }

    /// Removes the first name of an object that is not a directory.
    pub fn remove(&mut self, object: u32) -> Result<(), FsError> {
        let node = self.node(object)?;
        let (parent, name) = (node.parent, node.name.clone());
        self.unlink(parent, &name)
    }

    /// Removes an empty directory.
    pub fn rmdir(&mut self, parent: u32, name: &[u8]) -> Result<(), FsError> {
        self.begin()?;
        self.directory(parent)?;
        match name {
            b"." => return Err(FsError::Invalid),
            b".." => return Err(FsError::NotEmpty),
            _ => {}
        }
        let entry = self.index.lookup(parent, name).ok_or(FsError::NotFound)?;
        if !self.directory(entry)?.children.is_empty() {
            return Err(FsError::NotEmpty);
        }
        self.ready_to_drop(entry)?;
        self.leave(parent, name, true)?;
        self.drop_entry(entry)
    }

    /// Called before an object is added: writes the header page whose names have changed, unless the object comes on it.
    fn ready_for_new(&mut self, node: &Node) -> Result<(), FsError> {
        let bytes = crate::header::header_bytes(node, self.index.page_bytes);
        if bytes > self.index.room_bytes() {
            return Err(FsError::NameTooLong);
        }
        let page = self.index.page_for(bytes as u32);
        self.ready(Some(page))
    }

    /// Called before anything of an entry's removal is done in memory, so that nothing has to be programmed between.
    fn ready_to_drop(&mut self, entry: u32) -> Result<(), FsError> {
        let node = self.node(entry)?;
        if node.link_to.is_none() && !node.links.is_empty() {
            self.ready_to_grow(entry, MAX_NAME_BYTES)?;
        }
        self.ready(Some(self.node(entry)?.page))
    }

    /// Removes a directory entry that its directory no longer lists: an additional name, or an object with its only
    /// name.
    fn drop_entry(&mut self, entry: u32) -> Result<(), FsError> {
        let now = self.time;
        let node = self.node(entry)?;
        if let Some(object) = node.link_to {
            let page = self.index.remove(entry).page;
            let node = self.node_mut(object)?;
            node.links.retain(|link| *link != entry);
            node.ctime = now;
            self.times_changed(object);
            return self.touch(page, false);
        }
        if let Some(link) = node.links.last().copied() {
            // One of the additional names becomes the first.
            let link_node = self.index.remove(link);
            let node = self.node_mut(entry)?;
            node.links.pop();
            (node.parent, node.name, node.ctime) = (link_node.parent, link_node.name.clone(), now);
            let parent = self.node_mut(link_node.parent)?;
            parent.children.insert(link_node.name.clone(), entry);
            self.touch_object(entry)?;
            return self.touch(link_node.page, false);
        }
        if node.opens > 0 {
            let node = self.node_mut(entry)?;
            (node.orphan, node.ctime) = (true, now);
            let page = node.page;
            return self.touch(page, false);
        }
        self.destroy(entry)
    }

    /// Removes an object that has no name.
    pub(crate) fn destroy(&mut self, object: u32) -> Result<(), FsError> {
        // From here to the mark on the header page nothing is programmed.
        self.ready_in_between(Some(self.node(object)?.page))?;
        let mut node = self.index.remove(object);
        let gone = node.chunks.truncate(0);
        for ppn in &gone {
            self.log.trim(*ppn, self.now_us());
        }
        self.touch(node.page, true)?;
        for ppn in gone {
            self.erase_if_empty(ppn)?;
        }
        Ok(())
    }

    /// Moves a name, and replaces the object that has the new name already. After a power cut the state is the old or
    /// the new one.
    pub fn rename(
        &mut self,
        from: u32,
        name: &[u8],
        to: u32,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<(), FsError> {
        self.begin()?;
        self.directory(from)?;
        self.directory(to)?;
        let entry = self.index.lookup(from, name).ok_or(FsError::NotFound)?;
        Self::check_name(new_name)?;
        if self.node(to)?.orphan {
            return Err(FsError::NotFound);
        }
        let is_directory = self.node(entry)?.kind == ObjectKind::Directory;
        let over = self.index.lookup(to, new_name);
        if is_directory && self.index.ancestors(to).any(|ancestor| ancestor == entry) {
            return Err(FsError::Invalid);
        }
        if let Some(over) = over {
            if flags.no_replace {
                return Err(FsError::Exists);
            }
            let other = self.node(over)?;
            match (is_directory, other.kind == ObjectKind::Directory) {
                (true, false) => return Err(FsError::NotADirectory),
                (false, true) => return Err(FsError::IsADirectory),
                (true, true) if over != entry && !other.children.is_empty() => return Err(FsError::NotEmpty),
                _ => {}
            }
            // Both are names of the same object: POSIX asks for nothing to be done.
            if self.index.resolve(over) == self.index.resolve(entry) {
                return Ok(());
            }
        }
        if over.is_none() {
            self.want_reserve(1)?;
        }
        let bytes = crate::header::header_bytes(self.node(entry)?, self.index.page_bytes);
        if bytes - name.len() + new_name.len() > self.index.room_bytes() {
            return Err(FsError::NameTooLong);
        }
        self.ready_to_grow(entry, MAX_NAME_BYTES)?;
        self.ready(Some(self.node(entry)?.page))?;
        self.leave(from, name, is_directory)?;
        if over.is_some() {
            self.leave(to, new_name, is_directory)?;
        }
        self.enter(to, new_name, entry)?;
        let now = self.time;
        let node = self.node_mut(entry)?;
        (node.parent, node.name, node.ctime) = (to, new_name.into(), now);
        // Until the header page of the replaced object is written too, the mount takes the later one of two equal
        // names.
        self.touch_object(entry)?;
        let Some(over) = over else { return Ok(()) };
        if let Err(error) = self.ready_to_drop(over) {
            self.is_half_changed = true;
            return Err(error);
        }
        self.drop_entry(over)
    }

    /// Changes attributes.
    pub fn change(&mut self, object: u32, change: &Change) -> Result<Attributes, FsError> {
        self.begin()?;
        let page = self.node(object)?.page;
        if change.mode.is_some() || change.uid.is_some() || change.gid.is_some() {
            self.ready(Some(page))?;
        }
        let now = self.time;
        let node = self.node_mut(object)?;
        node.mode = change.mode.map_or(node.mode, |mode| mode & 0o7777);
        node.uid = change.uid.unwrap_or(node.uid);
        node.gid = change.gid.unwrap_or(node.gid);
        node.atime = change.atime.unwrap_or(node.atime);
        node.mtime = change.mtime.unwrap_or(node.mtime);
        node.ctime = change.ctime.unwrap_or(now);
        let (page, is_named) = (node.page, !node.orphan);
        let of_meaning = change.mode.is_some() || change.uid.is_some() || change.gid.is_some();
        if of_meaning && is_named && !self.index.single {
            self.touch(page, false)?;
        } else {
            self.times_changed(object);
        }
        self.attributes(object)
    }

    /// Names of the extended attributes.
    pub fn list_attributes(&self, object: u32) -> Result<impl Iterator<Item = &[u8]>, FsError> {
        Ok(self.node(object)?.attributes.keys().map(|name| &**name))
    }

    /// An extended attribute.
    pub fn get_attribute(&self, object: u32, name: &[u8]) -> Result<&[u8], FsError> {
        self.node(object)?.attributes.get(name).map(|value| &**value).ok_or(FsError::NoAttribute)
    }

    /// Whether any object has an extended attribute of that name. O(objects).
    pub fn has_attribute(&self, name: &[u8]) -> bool {
        self.index.iter().any(|(_, node)| node.attributes.contains_key(name))
    }

    /// Sets an extended attribute. All extended attributes of an object are in its header, which is smaller than a
    /// page.
    pub fn set_attribute(&mut self, object: u32, name: &[u8], value: &[u8]) -> Result<(), FsError> {
        self.begin()?;
        if name.len() > MAX_NAME_BYTES {
            return Err(FsError::NameTooLong);
        }
        self.want_room(1)?;
        self.ready_to_grow(object, name.len() + value.len() + 3)?;
        self.ready(Some(self.node(object)?.page))?;
        let (page_bytes, room) = (self.index.page_bytes, self.index.room_bytes());
        let now = self.time;
        let node = self.node_mut(object)?;
        let old = node.attributes.insert(name.into(), value.into());
        // Names and holes need room as well.
        if crate::header::header_bytes(node, page_bytes) + MAX_NAME_BYTES > room {
            match old {
                Some(old) => node.attributes.insert(name.into(), old),
                None => node.attributes.remove(name),
            };
            return Err(FsError::AttributeTooLarge);
        }
        node.ctime = now;
        self.touch_object(object)
    }

    /// Removes an extended attribute.
    pub fn remove_attribute(&mut self, object: u32, name: &[u8]) -> Result<(), FsError> {
        self.begin()?;
        self.ready(Some(self.node(object)?.page))?;
        let now = self.time;
        let node = self.node_mut(object)?;
        node.attributes.remove(name).ok_or(FsError::NoAttribute)?;
        node.ctime = now;
        self.touch_object(object)
    }
}
