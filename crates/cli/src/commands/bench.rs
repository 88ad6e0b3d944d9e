//! File benchmarks in a directory of any file system.

use crate::failure::Failure;
use margay_workload::{FileMix, FileOp};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

pub fn run(benchmark: &str, folder: &Path, seed: u64, keep: bool) -> Result<(), Failure> {
    let mix: FileMix =
        benchmark.parse().map_err(|error: margay_workload::WorkloadError| Failure::Usage(error.to_string()))?;
    let top = folder.join(format!("margay-bench-{}", std::process::id()));
    std::fs::create_dir(&top).map_err(|error| Failure::write(&top.display().to_string(), error))?;
    let mut bench = Bench { top: top.clone(), ..Bench::default() };
    let start = Instant::now();
    let steps = mix.steps(seed);
    let done = steps.iter().try_for_each(|step| bench.step(*step));
    let synced = File::open(&top).and_then(|folder| folder.sync_all());
    let elapsed = start.elapsed().as_secs_f64();
    if !keep {
        std::fs::remove_dir_all(&top).map_err(|error| Failure::write(&top.display().to_string(), error))?;
    }
    done.and(synced).map_err(|error| Failure::write(&top.display().to_string(), error))?;
    say!(
        "{mix}, seed {seed}: {} steps in {elapsed:.2} s; {} bytes written, {} read, {} syncs",
        steps.len(),
        bench.written,
        bench.read,
        bench.syncs
    );
    Ok(())
}

#[derive(Default)]
struct Bench {
    top: PathBuf,
    folders: HashMap<u32, PathBuf>,
    files: HashMap<u32, PathBuf>,
    open: HashMap<u32, File>,
    written: u64,
    read: u64,
    syncs: u64,
}

impl Bench {
    fn path(&self, parent: Option<u32>, name: String) -> PathBuf {
        parent.map_or(&self.top, |parent| &self.folders[&parent]).join(name)
    }

    fn step(&mut self, step: FileOp) -> std::io::Result<()> {
        match step {
            FileOp::Mkdir { directory, parent } => {
                let path = self.path(parent, format!("d{directory}"));
                std::fs::create_dir(&path)?;
                self.folders.insert(directory, path);
            }
            FileOp::Create { file, parent } => {
                let path = self.path(parent, format!("f{file}"));
                let made = OpenOptions::new().create_new(true).read(true).write(true).open(&path)?;
                self.files.insert(file, path);
                self.open.insert(file, made);
            }
            FileOp::Open { file } => {
                let opened = OpenOptions::new().read(true).write(true).open(&self.files[&file])?;
                self.open.insert(file, opened);
            }
            FileOp::Append { file, bytes } => self.write(file, SeekFrom::End(0), bytes)?,
            FileOp::Overwrite { file, bytes } => self.write(file, SeekFrom::Start(0), bytes)?,
            FileOp::Sync { file } => {
                self.syncs += 1;
                self.open[&file].sync_data()?;
            }
            FileOp::Close { file } => drop(self.open.remove(&file)),
            FileOp::Read { file } => {
                let mut data = Vec::new();
                File::open(&self.files[&file])?.read_to_end(&mut data)?;
                self.read += data.len() as u64;
            }
            FileOp::Delete { file } => std::fs::remove_file(&self.files[&file])?,
        }
        Ok(())
    }

    fn write(&mut self, file: u32, at: SeekFrom, bytes: u32) -> std::io::Result<()> {
        let opened = self.open.get_mut(&file).expect("benchmarks write to open files");
        opened.seek(at)?;
        opened.write_all(&vec![file as u8; bytes as usize])?;
        self.written += u64::from(bytes);
        Ok(())
    }
}
