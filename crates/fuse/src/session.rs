//! A mount from its start to its end: the session with the kernel, idle time, commits, metrics, signals.

use crate::fuse::Adapter;
use crate::{FileSystem, FsError, MountError, now};
use fuser::{Config, MountOption, Session, SessionACL};
use margay_volume::{Metrics, prometheus};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// How a file system is mounted.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Nothing is written.
    pub read_only: bool,
    /// Other users may use it too.
    pub allow_other: bool,
    /// Seconds after which new names, sizes and times are on flash without a sync.
    pub commit_s: u64,
    /// Operations on names (create, link, rename, remove) are answered only when they are durable.
    pub sync_names: bool,
    /// A file that is written anew every commit with metrics in Prometheus' text format.
    pub metrics: Option<PathBuf>,
    /// The kernel may keep what programs write until they close or sync the file.
    pub write_back: bool,
    /// Shown as the source of the mount.
    pub name: String,
}

/// Idle time starts so long after the last request.
const IDLE: Duration = Duration::from_millis(50);
/// Pages cleaned before a request is let in again.
const IDLE_PAGES: u32 = 16;

pub(crate) struct Shared {
    fs: Mutex<Option<FileSystem>>,
    last_request: Mutex<Instant>,
    is_stopped: AtomicBool,
    sync_names: bool,
}

pub(crate) struct Guard<'a>(MutexGuard<'a, Option<FileSystem>>);

impl std::ops::Deref for Guard<'_> {
    type Target = FileSystem;
    fn deref(&self) -> &FileSystem {
        self.0.as_ref().expect("the file system is there until the session has ended")
    }
}

impl std::ops::DerefMut for Guard<'_> {
    fn deref_mut(&mut self) -> &mut FileSystem {
        self.0.as_mut().expect("the file system is there until the session has ended")
    }
}

impl Shared {
    /// A poisoned lock means a broken invariant; nothing more may be written then.
    fn lock(&self) -> Guard<'_> {
        let mut guard = Guard(self.fs.lock().expect("no request has panicked"));
        guard.set_time(now());
        guard
    }

    /// Whether operations on names are answered only when they are durable.
    pub(crate) fn syncs_names(&self) -> bool {
        self.sync_names
    }

    /// The lock for a request of the kernel: idle time begins anew.
    pub(crate) fn lock_for_request(&self) -> Guard<'_> {
        *self.last_request.lock().expect("nothing here panics") = Instant::now();
        self.lock()
    }
}

/// Errors of work that nobody asked for, each of which is said once until the work succeeds again: one that stays, as after
/// a failed sync, comes back at every commit.
#[derive(Default)]
struct Said(Option<String>);

impl Said {
    /// Says an error unless it was the last that was said. True if it was said.
    fn say(&mut self, what: &str, result: Result<(), FsError>) -> bool {
        let error = result.err().map(|error| format!("{what}: {error}"));
        let is_new = error.is_some() && error != self.0;
        if let Some(error) = error.as_ref().filter(|_| is_new) {
            tracing::error!("{error}");
        }
        self.0 = error;
        is_new
    }
}

/// Commits now and then, writes metrics, and cleans in idle time, until the session ends.
fn housekeeping(shared: &Shared, options: &MountOptions) {
    let mut last_commit = Instant::now();
    let (mut of_commits, mut of_cleaning) = (Said::default(), Said::default());
    while !shared.is_stopped.load(Ordering::Relaxed) {
        std::thread::sleep(IDLE);
        if last_commit.elapsed() >= Duration::from_secs(options.commit_s) {
            last_commit = Instant::now();
            let mut fs = shared.lock();
            of_commits.say("writing names and sizes", fs.commit());
            if let Some(path) = &options.metrics {
                write_metrics(path, &Metrics::of(&*fs));
            }
        }
        let is_idle = || shared.last_request.lock().expect("nothing here panics").elapsed() >= IDLE;
        while is_idle() && !shared.is_stopped.load(Ordering::Relaxed) {
            match shared.lock().idle_step(IDLE_PAGES) {
                Ok(true) => {}
                result => {
                    of_cleaning.say("cleaning", result.map(drop));
                    break;
                }
            }
        }
    }
}

fn write_metrics(path: &Path, metrics: &Metrics) {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".margay-new");
    let written = std::fs::write(&temporary, prometheus(metrics)).and_then(|()| std::fs::rename(&temporary, path));
    if let Err(error) = written {
        tracing::warn!("{}: {error}", path.display());
    }
}

fn advice(error: &std::io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV) => {
            "The directory has to exist, and the kernel needs FUSE (/dev/fuse; modprobe fuse) with fusermount3 (package fuse3)"
        }
        Some(libc::EPERM | libc::EACCES) => {
            "Mounting needs /dev/fuse and root or fusermount3; --allow-other needs root or user_allow_other in /etc/fuse.conf"
        }
        Some(libc::EBUSY | libc::ENOTCONN) => "Something is mounted there already; fusermount3 -u unmounts it",
        _ => "Is FUSE there (/dev/fuse, package fuse3)?",
    }
}

/// Mounts a file system and serves it until it is unmounted or a signal (INT, TERM, HUP) asks for that; then stops
/// it cleanly. `ready` is called when it can be used. Says whether a checkpoint was written.
pub fn mount(fs: FileSystem, folder: &Path, options: &MountOptions, ready: impl FnOnce()) -> Result<bool, MountError> {
    let shared = Arc::new(Shared {
        fs: Mutex::new(Some(fs)),
        last_request: Mutex::new(Instant::now()),
        is_stopped: AtomicBool::new(false),
        sync_names: options.sync_names && !options.read_only,
    });
    let adapter = Adapter::new(shared.clone(), options.write_back && !options.read_only);
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(options.name.clone()),
        MountOption::Subtype("margay".into()),
        MountOption::DefaultPermissions,
        MountOption::NoAtime,
        if options.read_only { MountOption::RO } else { MountOption::RW },
    ];
    config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
    let failed =
        |error: std::io::Error| MountError::Fuse { path: folder.display().to_string(), advice: advice(&error), error };
    let mut session = Session::new(adapter, folder, &config).map_err(failed)?;
    let mut unmounter = session.unmount_callable();
    let mut signals = signal_hook::iterator::Signals::new([libc::SIGINT, libc::SIGTERM, libc::SIGHUP])?;
    let handle = signals.handle();
    let folder_text = folder.to_path_buf();
    let waiting = std::thread::spawn(move || {
        for _ in signals.forever() {
            match unmounter.unmount() {
                Ok(()) => return,
                // It is in use: it goes from the tree of directories, and ends when its last user does.
                Err(error) => {
                    tracing::warn!(
                        "{}: in use ({error}); it is unmounted when the last file is closed",
                        folder_text.display()
                    );
                    let _ = std::process::Command::new("fusermount3").arg("-uz").arg(&folder_text).status();
                }
            }
        }
    });
    let keeping = {
        let (shared, options) = (shared.clone(), options.clone());
        std::thread::spawn(move || housekeeping(&shared, &options))
    };
    ready();
    let served = session.run();
    shared.is_stopped.store(true, Ordering::Relaxed);
    handle.close();
    let _ = waiting.join();
    let _ = keeping.join();
    let mut fs = shared.fs.lock().expect("no request has panicked").take().expect("nobody else takes it");
    fs.set_time(now());
    let stopped = fs.stop()?;
    served.map_err(failed)?;
    Ok(stopped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_stays_is_said_once_until_the_work_succeeds_again() {
        let mut said = Said::default();
        assert!(said.say("writing", Err(FsError::NoSpace)));
        assert!(!said.say("writing", Err(FsError::NoSpace)));
        assert!(said.say("writing", Err(FsError::ReadOnly)));
        assert!(!said.say("writing", Ok(())));
        assert!(said.say("writing", Err(FsError::ReadOnly)));
    }
}
