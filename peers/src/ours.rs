use crate::{Counts, PAGE_BYTES, PAGES, Peer, SEGMENTS};
use margay_flash::Geometry;
use margay_format::Formatted;
use margay_fs::{NewObject, ROOT};
use margay_media::{Meter, RamFlash, Strict};
use margay_policy::{LevelingSpec, SelectionSpec};
use margay_volume::{Files, FilesFormatOptions, FilesOpenOptions, StoreOptions, format_files, open_files};
use std::collections::HashMap;

type Device = Meter<Strict<RamFlash>>;

pub struct Ours {
    name: &'static str,
    fs: Option<Files<Device>>,
    objects: HashMap<u32, u32>,
}

fn formatted(name: &'static str, options: &FilesFormatOptions) -> Box<dyn Peer> {
    let geometry = Geometry::new(SEGMENTS, PAGES, PAGE_BYTES as u32).expect("a sound shape").with_spare(256);
    let device = Meter::new(Strict::new(RamFlash::new(geometry)));
    let fs = format_files(device, options).expect("the device is large enough");
    Box::new(Ours { name, fs: Some(fs), objects: HashMap::new() })
}

pub fn make() -> Box<dyn Peer> {
    formatted("margay", &FilesFormatOptions::default())
}

/// With the selection and leveling that the disk was measured with.
pub fn make_greedy() -> Box<dyn Peer> {
    let defaults = FilesFormatOptions::default();
    let (selection, leveling) = (SelectionSpec::known("greedy"), LevelingSpec::known("none"));
    let store = StoreOptions { selection, leveling, ..defaults.store };
    formatted("margay, greedy", &FilesFormatOptions { store, ..defaults })
}

impl Ours {
    fn fs(&mut self) -> &mut Files<Device> {
        self.fs.as_mut().expect("it is mounted")
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl Peer for Ours {
    fn name(&self) -> String {
        self.name.into()
    }

    fn create(&mut self, file: u32) -> Result<(), String> {
        let name = file.to_string();
        let object = self.fs().create(ROOT, name.as_bytes(), &NewObject::FILE).map_err(text)?.object;
        self.objects.insert(file, object);
        Ok(())
    }

    fn write(&mut self, file: u32, offset: u64, data: &[u8], sync: bool) -> Result<(), String> {
        let object = self.objects[&file];
        let done = self.fs().write(object, offset, data).map_err(text)?;
        if done < data.len() {
            return Err("no space".into());
        }
        self.fs().close(object).map_err(text)?;
        if sync { self.fs().fsync(object, false).map_err(text) } else { Ok(()) }
    }

    fn read(&mut self, file: u32, data: &mut [u8]) -> Result<usize, String> {
        let object = self.objects[&file];
        self.fs().read(object, 0, data).map_err(text)
    }

    fn remove(&mut self, file: u32) -> Result<(), String> {
        self.fs().unlink(ROOT, file.to_string().as_bytes()).map_err(text)
    }

    fn sync(&mut self) -> Result<(), String> {
        self.fs().sync().map_err(text)
    }

    fn counts(&self) -> Counts {
        let log = self.fs.as_ref().expect("it is mounted").log();
        let device: &Formatted<Device> = log.device();
        let done = device.device().operations();
        let erases = log.segments().erases[1..].to_vec();
        Counts { programmed_bytes: done.programmed_bytes, read_bytes: done.read_bytes, erases }
    }

    fn mount_reads(&mut self) -> Result<f64, String> {
        let device = self.fs.take().expect("it is mounted").into_device().into_device();
        let fs = open_files(device, &FilesOpenOptions::default()).map_err(text)?.files;
        let reads = fs.mount_report().reads;
        self.fs = Some(fs);
        Ok(reads.into())
    }

    fn memory_bytes(&self) -> u64 {
        let (objects, log) = self.fs.as_ref().expect("it is mounted").memory_bytes();
        objects + log
    }
}
