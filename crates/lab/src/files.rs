//! File benchmarks on the file system of the engine.

use crate::LabError;
use margay_flash::Geometry;
use margay_format::Plain;
use margay_fs::{AllocatorSpec, ExplicitCleaning, Fs, FsCounters, FsError, Headers, NewObject, ROOT, Time};
use margay_log::{Config, Counters, Policies};
use margay_media::{DeviceSpec, NullFlash};
use margay_policy::{SelectionSpec, Sizing};
use margay_workload::{FileMix, FileOp};
use serde::Serialize;

/// A device for file benchmarks, and how the file system uses it. The default choices are those of the MODA paper.
#[derive(Clone, Debug)]
pub struct FileDevice {
    /// The part.
    pub device: DeviceSpec,
    /// Its allocator.
    pub allocator: AllocatorSpec,
    /// How object headers are kept.
    pub headers: Headers,
    /// A segment is erased as soon as its last page becomes invalid.
    pub eager: bool,
    /// Cleaning starts when fewer segments are free.
    pub low_water: u32,
    /// YAFFS's normal mode: at every page write the emptiest of the next 200 segments is cleaned if it holds fewer than
    /// 3 valid pages.
    pub normal_cleaning: bool,
    /// A deletion changes no page: deleted data counts as valid and is copied.
    pub lazy_deletion: bool,
}

impl FileDevice {
    /// The device of the paper: 3712 segments of 32 pages of 512 bytes, one header on each header page.
    pub fn of_the_paper(allocator: AllocatorSpec) -> Result<Self, LabError> {
        let mut device = DeviceSpec::load("nand-small-block-64mb")?;
        device.segments = 3712;
        Ok(Self {
            device,
            allocator,
            headers: Headers::Single,
            eager: true,
            low_water: 6,
            normal_cleaning: false,
            lazy_deletion: false,
        })
    }
}

/// A file system under a benchmark.
#[derive(Debug)]
pub struct FileRun {
    fs: Fs<Plain<NullFlash>>,
    allocator: AllocatorSpec,
    geometry: Geometry,
    files: Vec<u32>,
    directories: Vec<u32>,
    /// Sizes of the files in bytes, by number.
    sizes: Vec<u64>,
    lazy_deletion: bool,
    /// YAFFS's normal mode: where its next window begins, and pages written so far.
    window: Option<(u32, u64)>,
    names: u64,
    buffer: Vec<u8>,
    /// Pages read by the programs.
    pub pages_read: u64,
    device: DeviceSpec,
}

/// The state after a run, and what cleaning the whole device then cost.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct FileRow {
    pub margay_version: String,
    pub seed: u64,
    pub benchmark: String,
    pub allocator: String,
    pub device: String,
    pub segments: u32,
    pub pages_per_segment: u32,
    pub page_bytes: u32,
    pub utilization: f64,
    pub invalidity: f64,
    pub uniformity: f64,
    /// By eq. 2 of the MODA paper.
    pub estimated_erases: f64,
    pub estimated_copies: f64,
    pub estimated_s: f64,
    pub measured_erases: u64,
    pub measured_copies: u64,
    /// With a read of every valid page, which the paper's cleaning takes.
    pub measured_s: f64,
    /// Without those reads.
    pub cleaning_s: f64,
    /// Segments erased during the run because their last page became invalid.
    pub eager_erases: u64,
    /// Pages programmed by the programs, headers included, and by cleaning during the run.
    pub data_pages: u64,
    pub header_pages: u64,
    pub copies_before: u64,
    pub erases_before: u64,
    /// Device time of the run.
    pub run_s: f64,
    pub bytes_written: u64,
}

/// Runs a mix of benchmarks on an empty file system, then cleans all of it.
///
/// # Errors
/// The file system does not fit the device, or the files do not fit the file system.
pub fn run_benchmark(spec: &FileDevice, mix: &FileMix, seed: u64) -> Result<FileRow, LabError> {
    run_benchmark_while(spec, mix, seed, &|| true)
}

/// The same, as long as `keep_on` says so.
///
/// # Errors
/// Those of [`run_benchmark`], and [`LabError::Interrupted`].
pub fn run_benchmark_while(
    spec: &FileDevice,
    mix: &FileMix,
    seed: u64,
    keep_on: &dyn Fn() -> bool,
) -> Result<FileRow, LabError> {
    let mut run = FileRun::new(spec)?;
    run.run_while(&mix.steps(seed), keep_on)?;
    run.finish(&mix.to_string(), seed)
}

impl FileRun {
    /// An empty file system.
    pub fn new(spec: &FileDevice) -> Result<Self, LabError> {
        let geometry = spec.device.geometry()?;
        let config = Config {
            header_pages: spec.device.header_pages,
            low_water: spec.low_water,
            high_water: spec.low_water,
            ..Config::default()
        };
        let data_pages = config.data_pages(&geometry);
        let exported_pages = config.limit_pages(&geometry, spec.allocator.streams().into())?;
        let sizing = Sizing { segments: geometry.segments(), data_pages, exported_pages, seed: 0 };
        let policies = Policies::for_files(SelectionSpec::default(), spec.allocator, sizing);
        let store = Plain::new(NullFlash::new(geometry));
        let fs = Fs::volatile(store, config, policies, spec.headers, spec.eager)?;
        Ok(Self {
            fs,
            geometry,
            files: Vec::new(),
            directories: Vec::new(),
            sizes: Vec::new(),
            lazy_deletion: spec.lazy_deletion,
            window: spec.normal_cleaning.then_some((0, 0)),
            names: 0,
            buffer: vec![0; 4096],
            pages_read: 0,
            allocator: spec.allocator,
            device: spec.device.clone(),
        })
    }

    /// Carries out the steps of a benchmark. Files and directories are numbered from 0 in each call.
    pub fn run(&mut self, steps: &[FileOp]) -> Result<(), LabError> {
        self.run_while(steps, &|| true)
    }

    /// The same, as long as `keep_on` says so.
    ///
    /// # Errors
    /// The files do not fit the file system; [`LabError::Interrupted`] if it was stopped.
    pub fn run_while(&mut self, steps: &[FileOp], keep_on: &dyn Fn() -> bool) -> Result<(), LabError> {
        (self.files, self.directories, self.sizes) = (Vec::new(), Vec::new(), Vec::new());
        for step in steps {
            if !keep_on() {
                return Err(LabError::Interrupted { writes: self.counters().host_writes });
            }
            self.step(*step)?;
            self.clean_windows()?;
        }
        Ok(())
    }

    /// Does the cleaning of YAFFS's normal mode for the pages written since the last call.
    fn clean_windows(&mut self) -> Result<(), LabError> {
        let Some((mut from, mut done)) = self.window else { return Ok(()) };
        while done < self.counters().host_writes {
            from = self.fs.clean_window(from, 200, 3)?;
            done += 1;
        }
        self.window = Some((from, done));
        Ok(())
    }

    fn name(&mut self) -> Vec<u8> {
        self.names += 1;
        self.names.to_string().into_bytes()
    }

    fn step(&mut self, step: FileOp) -> Result<(), FsError> {
        self.fs.set_time(Time { secs: 0, nanos: 0 });
        match step {
            FileOp::Mkdir { directory, parent } => {
                let (parent, name) = (parent.map_or(ROOT, |parent| self.directories[parent as usize]), self.name());
                let object = self.fs.create(parent, &name, &NewObject::DIRECTORY)?.object;
                place(&mut self.directories, directory, object);
            }
            FileOp::Create { file, parent } => {
                let (parent, name) = (parent.map_or(ROOT, |parent| self.directories[parent as usize]), self.name());
                let object = self.fs.create(parent, &name, &NewObject::FILE)?.object;
                place(&mut self.files, file, object);
                if self.sizes.len() <= file as usize {
                    self.sizes.resize(file as usize + 1, 0);
                }
                self.sizes[file as usize] = 0;
                self.fs.open(object)?;
            }
            FileOp::Open { file } => self.fs.open(self.files[file as usize])?,
            FileOp::Append { file, bytes } => {
                let at = self.sizes[file as usize];
                self.fs.write(self.files[file as usize], at, &self.buffer[..bytes as usize])?;
                self.sizes[file as usize] = at + u64::from(bytes);
            }
            FileOp::Overwrite { file, bytes } => {
                self.fs.write(self.files[file as usize], 0, &self.buffer[..bytes as usize])?;
            }
            // Only the data page is written; the header waits for the end of the session.
            FileOp::Sync { file } => self.fs.flush_data(self.files[file as usize])?,
            FileOp::Close { file } => self.fs.close(self.files[file as usize])?,
            FileOp::Read { file } => {
                self.pages_read += self.sizes[file as usize].div_ceil(u64::from(self.geometry.page_bytes()));
            }
            FileOp::Delete { file } if self.lazy_deletion => self.sizes[file as usize] = 0,
            FileOp::Delete { file } => {
                let object = self.files[file as usize];
                self.fs.remove(object)?;
            }
        }
        Ok(())
    }

    /// What the log has done so far.
    pub fn counters(&self) -> &Counters {
        self.fs.log().counters()
    }

    /// The counters of the file system so far.
    pub fn file_counters(&self) -> FsCounters {
        self.fs.counters()
    }

    /// The utilization of the device now.
    pub fn utilization(&self) -> f64 {
        self.fs.uniformity().utilization
    }

    /// Device time of the given programs, copies and erases, in seconds.
    pub fn seconds(&self, programs: u64, copies: u64, erases: u64, reads: u64) -> f64 {
        let timing = &self.device.timing;
        let us = programs as f64 * timing.program_us
            + copies as f64 * timing.copy_us()
            + erases as f64 * timing.erase_us
            + reads as f64 * timing.read_us;
        us * 1e-6
    }

    /// Cleans every segment that has an invalid page.
    pub fn clean(&mut self) -> Result<ExplicitCleaning, LabError> {
        Ok(self.fs.clean_all()?)
    }

    /// Ends the run: cleans the whole device, and returns the state before and the cost.
    pub fn finish(mut self, benchmark: &str, seed: u64) -> Result<FileRow, LabError> {
        let (before, files) = (self.counters().clone(), self.file_counters());
        let cleaning = self.clean()?;
        self.fs.audit().map_err(|error| LabError::Value {
            what: "audit",
            value: benchmark.into(),
            problem: error.to_string(),
        })?;
        let state = cleaning.before;
        let data_pages = self.geometry.pages_per_segment() - self.device.header_pages;
        let estimate = margay_theory::cleaning_cost(
            state.utilization,
            state.invalidity,
            state.uniformity,
            self.geometry.segments().into(),
            data_pages.into(),
        )?;
        let timing = &self.device.timing;
        let programs = before.host_writes + before.metadata_pages;
        Ok(FileRow {
            margay_version: env!("CARGO_PKG_VERSION").into(),
            seed,
            benchmark: benchmark.into(),
            allocator: self.allocator.to_string(),
            device: self.device.name.clone(),
            segments: self.geometry.segments(),
            pages_per_segment: self.geometry.pages_per_segment(),
            page_bytes: self.geometry.page_bytes(),
            utilization: state.utilization,
            invalidity: state.invalidity,
            uniformity: state.uniformity,
            estimated_erases: estimate.erases,
            estimated_copies: estimate.copies,
            estimated_s: (estimate.erases * timing.erase_us + estimate.copies * timing.copy_us()) * 1e-6,
            measured_erases: cleaning.erases,
            measured_copies: cleaning.copies,
            measured_s: self.seconds(0, cleaning.copies, cleaning.erases, cleaning.valid_pages),
            cleaning_s: self.seconds(0, cleaning.copies, cleaning.erases, 0),
            eager_erases: files.eager_erases,
            data_pages: files.data_pages,
            header_pages: files.header_pages,
            copies_before: before.copies,
            erases_before: before.erases,
            run_s: self.seconds(programs, before.copies, before.erases, self.pages_read),
            bytes_written: files.bytes_written,
        })
    }
}

fn place(numbers: &mut Vec<u32>, at: u32, object: u32) {
    if numbers.len() <= at as usize {
        numbers.resize(at as usize + 1, 0);
    }
    numbers[at as usize] = object;
}
