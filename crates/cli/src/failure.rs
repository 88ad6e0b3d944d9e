use margay_lab::LabError;
use std::fmt;
use std::process::ExitCode;

/// Why a command ended without doing what was asked, by exit code.
#[derive(Debug)]
pub enum Failure {
    /// 1: the run stopped short, or a result could not be written.
    Run(String),
    /// 2: an unknown name or an impossible value.
    Usage(String),
    /// 3: an input file cannot be read or is damaged.
    Input(String),
    /// 130: stopped by the user.
    Interrupted(String),
    /// The program that was run ended with this exit code.
    Program(u8),
    /// The reader of the output went away; not an error worth a message.
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

    /// Whether there is nothing to say.
    pub fn is_silent(&self) -> bool {
        matches!(self, Self::ClosedPipe | Self::Program(_))
    }

    /// A result that could not be written.
    pub fn write(path: &str, error: impl fmt::Display) -> Self {
        Self::Run(format!("{path}: {error}"))
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
        let text = error.to_string();
        match error {
            LabError::Stopped { .. }
            | LabError::Short { .. }
            | LabError::Files(_)
            | LabError::Hybrid(_)
            | LabError::Log(_)
            | LabError::Theory(_) => Self::Run(text),
            LabError::Interrupted { .. } => Self::Interrupted(text),
            LabError::Trace(error) => error.into(),
            LabError::File { .. } => Self::Input(text),
            LabError::Value { .. }
            | LabError::Geometry(_)
            | LabError::Config(_)
            | LabError::Policy(_)
            | LabError::Workload(_) => Self::Usage(text),
        }
    }
}

impl From<margay_trace::TraceError> for Failure {
    fn from(error: margay_trace::TraceError) -> Self {
        use margay_trace::TraceError as E;
        let text = error.to_string();
        match error {
            E::UnknownName { .. } | E::NotWritable { .. } | E::Layout(_) => Self::Usage(text),
            _ => Self::Input(text),
        }
    }
}

/// A volume that could not be used, with the name of its image.
pub fn of_volume(image: &std::path::Path, error: &margay_volume::VolumeError) -> Failure {
    use margay_volume::VolumeError as E;
    let text = format!("{}: {error}", image.display());
    match error {
        E::Policy(_) | E::TooLarge { .. } | E::Layout(_) | E::Superblock(_) => Failure::Usage(text),
        E::NotFormatted(_) | E::NotADisk | E::Mount(_) => Failure::Input(text),
        _ => Failure::Run(text),
    }
}

/// A file system that could not be used, with the name of its image.
pub fn of_mount(image: &std::path::Path, error: &margay_mount::MountError) -> Failure {
    use margay_mount::MountError as E;
    let text = format!("{}: {error}", image.display());
    match error {
        E::Policy(_) | E::Layout(_) | E::Superblock(_) | E::Config(_) => Failure::Usage(text),
        E::Mount(_) => Failure::Input(text),
        E::Fs(_) | E::Fuse { .. } | E::Io(_) => Failure::Run(text),
    }
}

/// A file that is no image, or cannot be used as one.
pub fn of_image(image: &std::path::Path, error: &margay_media::ImageError) -> Failure {
    Failure::Input(format!("{}: {error}", image.display()))
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

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe { Self::ClosedPipe } else { Self::Run(error.to_string()) }
    }
}
