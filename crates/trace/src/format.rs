use crate::TraceError;
use std::str::FromStr;

/// The formats of traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Microsoft Research Cambridge, SNIA.
    Msr,
    /// Alibaba block traces 2020.
    Alibaba,
    /// Tencent cloud block storage.
    Tencent,
    /// fio I/O log, version 2 or 3.
    Fio,
    /// Text of blkparse, and the one-line-per-event text of block-layer tracers.
    Blkparse,
    /// Storage Performance Council.
    Spc,
    /// DiskSim, ASCII.
    DiskSim,
    /// MQSim, ASCII.
    Mqsim,
    /// HP SRT 1.3, binary.
    HpSrt,
    /// libCacheSim CSV.
    LibCacheSimCsv,
    /// libCacheSim oracleGeneral, binary.
    OracleGeneral,
    /// CloudPhysics CSV.
    CloudPhysics,
    /// CSV with named columns.
    Csv,
    /// margay's own.
    Mgt,
}

impl Format {
    /// All of them.
    pub const ALL: &'static [Self] = &[
        Self::Msr,
        Self::Alibaba,
        Self::Tencent,
        Self::Fio,
        Self::Blkparse,
        Self::Spc,
        Self::DiskSim,
        Self::Mqsim,
        Self::HpSrt,
        Self::LibCacheSimCsv,
        Self::OracleGeneral,
        Self::CloudPhysics,
        Self::Csv,
        Self::Mgt,
    ];

    /// The name to write.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Msr => "msr",
            Self::Alibaba => "alibaba",
            Self::Tencent => "tencent",
            Self::Fio => "fio",
            Self::Blkparse => "blkparse",
            Self::Spc => "spc",
            Self::DiskSim => "disksim",
            Self::Mqsim => "mqsim",
            Self::HpSrt => "hp-srt",
            Self::LibCacheSimCsv => "libcachesim-csv",
            Self::OracleGeneral => "oracle-general",
            Self::CloudPhysics => "cloudphysics",
            Self::Csv => "csv",
            Self::Mgt => "mgt",
        }
    }

    /// Its layout in a line, with units.
    pub const fn doc(self) -> &'static str {
        match self {
            Self::Msr => "Timestamp (100 ns),Hostname,Disk,Type (Read, Write),Offset (bytes),Size (bytes),ResponseTime",
            Self::Alibaba => "device,opcode (R, W),offset (bytes),length (bytes),timestamp (us)",
            Self::Tencent => "timestamp (s),offset (512 B),size (512 B),type (0 read, 1 write),volume",
            Self::Fio => "fio version 2 or 3 iolog: [timestamp (ms)] file action offset length (bytes)",
            Self::Blkparse => {
                "device cpu seq time (s) pid action RWBS sector + sectors; one action is counted (Q, else D, else C)"
            }
            Self::Spc => "ASU,LBA (512 B),size (bytes),opcode (r, w),timestamp (s)",
            Self::DiskSim => "time (ms, with a point) device sector (512 B) sectors flags (bit 0: 0 write, 1 read)",
            Self::Mqsim => "time (ns, whole) device sector (512 B) sectors type (0 write, 1 read)",
            Self::HpSrt => "HP SRT 1.3, binary: text header, then records of 56 bytes",
            Self::LibCacheSimCsv => "time (s),object,size (bytes)[,op]: a write of the object unless op says otherwise",
            Self::OracleGeneral => {
                "24-byte records: time u32 (s), object u64, size u32, next access i64: each a write of the object"
            }
            Self::CloudPhysics => "header, then version,time (s),op (SCSI code, hex),size (bytes),lbn (512 B)",
            Self::Csv => "columns by name or number, by a layout in TOML (--csv-layout); some layouts are recognized",
            Self::Mgt => "margay's own: delta-coded records in zstd with a checksum",
        }
    }

    pub(crate) fn names() -> String {
        Self::ALL.iter().map(|format| format.name()).collect::<Vec<_>>().join(", ")
    }
}

impl FromStr for Format {
    type Err = TraceError;

    fn from_str(name: &str) -> Result<Self, TraceError> {
        let found = Self::ALL.iter().copied().find(|format| format.name() == name);
        found.ok_or_else(|| TraceError::UnknownName { name: name.into(), known: Self::names() })
    }
}
