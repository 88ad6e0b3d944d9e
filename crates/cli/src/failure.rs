use margay_lab::{ErrorKind, LabError};
use std::fmt;
use std::io;
use std::path::Path;
use std::process::ExitCode;

/// Why a command did not do what was asked. Each kind has its own exit code.
#[derive(Debug)]
pub enum Failure {
    /// 1: the run failed, or a result could not be written.
    Run(String),
    /// 2: an unknown name or an impossible value.
    Usage(String),
    /// 3: an input file cannot be read or is damaged.
    Input(String),
    /// 130: interrupted by the user.
    Interrupted(String),
    /// The program that was run ended with this exit code, which becomes that of the command.
    Program(u8),
    /// The reader of the output closed the pipe, which is no error.
    ClosedPipe,
}

impl Failure {
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Run(_) => ExitCode::from(1),
            Self::Usage(_) => ExitCode::from(2),
            Self::Input(_) => ExitCode::from(3),
            Self::Interrupted(_) => ExitCode::from(130),
            Self::Program(code) => ExitCode::from(*code),
            Self::ClosedPipe => ExitCode::SUCCESS,
        }
    }

    /// Whether the failure needs no message.
    pub fn is_silent(&self) -> bool {
        matches!(self, Self::ClosedPipe | Self::Program(_))
    }

    fn of(kind: ErrorKind, text: String) -> Self {
        match kind {
            ErrorKind::Run => Self::Run(text),
            ErrorKind::Usage => Self::Usage(text),
            ErrorKind::Input => Self::Input(text),
            ErrorKind::Interrupted => Self::Interrupted(text),
        }
    }

    /// The failure to write a result to `path`.
    pub fn write(path: &str, error: impl fmt::Display) -> Self {
        Self::Run(format!("{path}: {error}"))
    }

    /// The failure to make a new file at `path`; that it exists already is the user's to decide.
    pub fn new_file(path: &Path, error: &io::Error) -> Self {
        let text = format!("{}: {error}", path.display());
        if error.kind() == io::ErrorKind::AlreadyExists { Self::Usage(text) } else { Self::Run(text) }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(text) | Self::Usage(text) | Self::Input(text) | Self::Interrupted(text) => f.write_str(text),
            Self::Program(_) | Self::ClosedPipe => Ok(()),
        }
    }
}

impl From<LabError> for Failure {
    fn from(error: LabError) -> Self {
        Self::of(error.kind(), error.to_string())
    }
}

impl From<margay_media::DeviceError> for Failure {
    fn from(error: margay_media::DeviceError) -> Self {
        Self::of((&error).into(), error.to_string())
    }
}

impl From<margay_trace::TraceError> for Failure {
    fn from(error: margay_trace::TraceError) -> Self {
        Self::of((&error).into(), error.to_string())
    }
}

/// The failure to use the disk or the file system on an image. The message starts with the name of the image.
pub fn of_volume(image: &Path, error: &margay_volume::VolumeError) -> Failure {
    use margay_volume::VolumeError as E;
    let text = format!("{}: {error}", image.display());
    match error {
        E::Policy(_) | E::TooLarge { .. } | E::RangePastEnd { .. } | E::Layout(_) | E::Superblock(_) | E::Config(_) => {
            Failure::Usage(text)
        }
        E::NotFormatted(_) | E::NotADisk | E::Mount(_) | E::FilesMount(_) => Failure::Input(text),
        _ => Failure::Run(text),
    }
}

/// The failure to mount the file system on an image. The message starts with the name of the image.
pub fn of_mount(image: &Path, error: &margay_fuse::MountError) -> Failure {
    Failure::Run(format!("{}: {error}", image.display()))
}

/// The failure to open or create an image. The message starts with the name of the image.
pub fn of_image(image: &Path, error: &margay_media::ImageError) -> Failure {
    match error {
        margay_media::ImageError::InUse => in_use(image),
        error => Failure::Input(format!("{}: {error}", image.display())),
    }
}

/// The failure to open a chip. The message starts with the name of its device.
pub fn of_chip(chip: &Path, error: &margay_media::MtdError) -> Failure {
    if error.is_in_use() { in_use(chip) } else { Failure::Input(format!("{}: {error}", chip.display())) }
}

fn in_use(path: &Path) -> Failure {
    let who = crate::in_use::holder(path).unwrap_or_else(|| "another process".into());
    Failure::Input(format!(
        "{}: {who} uses it; wait for its end or stop it (ctrl-C), or use the data by way of it",
        path.display()
    ))
}

impl From<margay_policy::SpecError> for Failure {
    fn from(error: margay_policy::SpecError) -> Self {
        Self::Usage(error.to_string())
    }
}

impl From<margay_workload::WorkloadError> for Failure {
    fn from(error: margay_workload::WorkloadError) -> Self {
        Self::Usage(error.to_string())
    }
}

impl From<margay_theory::TheoryError> for Failure {
    fn from(error: margay_theory::TheoryError) -> Self {
        Self::Usage(error.to_string())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe { Self::ClosedPipe } else { Self::Run(error.to_string()) }
    }
}
