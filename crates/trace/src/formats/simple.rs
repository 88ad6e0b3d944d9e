//! Formats of five or seven fixed columns.

use super::{Devices, HEADER, Line, LineFormat, Raw, fields, sectors, small, time, whole, words};
use crate::Kind;

fn request(time_ns: u128, kind: Kind, device: u32, offset_bytes: u64, len_bytes: u64) -> Line {
    Line::Request(Raw { time_ns, kind, device, offset_bytes, len_bytes })
}

fn read_or_write(text: &[u8]) -> Result<Kind, String> {
    match text.trim_ascii() {
        b"R" | b"r" | b"Read" | b"read" | b"READ" => Ok(Kind::Read),
        b"W" | b"w" | b"Write" | b"write" | b"WRITE" => Ok(Kind::Write),
        _ => Err("the type is neither a read nor a write".into()),
    }
}

/// MSR Cambridge: `Timestamp,Hostname,Disk,Type,Offset,Size,ResponseTime`, time in ticks of 100 ns.
#[derive(Debug, Default)]
pub(crate) struct Msr(Devices);

impl LineFormat for Msr {
    fn line(&mut self, line: &[u8]) -> Result<Line, String> {
        if line.starts_with(b"Timestamp") {
            return Ok(HEADER);
        }
        let [ticks, _, _, kind, offset, size, _] = fields::<7>(line, b',')?;
        let start = ticks.len() + 1;
        // Host and disk as one name.
        let end = start + line[start..].split(|b| *b == b',').take(2).map(|field| field.len() + 1).sum::<usize>() - 1;
        let device = self.0.number(&line[start..end]);
        let time_ns = time(ticks, 100)?;
        Ok(request(time_ns, read_or_write(kind)?, device, whole("offset", offset)?, whole("size", size)?))
    }
}

/// Alibaba: `device,opcode,offset,length,timestamp`, bytes and microseconds.
#[derive(Debug)]
pub(crate) struct Alibaba;

impl LineFormat for Alibaba {
    fn line(&mut self, line: &[u8]) -> Result<Line, String> {
        if line.starts_with(b"device_id") {
            return Ok(HEADER);
        }
        let [device, kind, offset, len, us] = fields::<5>(line, b',')?;
        let (kind, time_ns) = (read_or_write(kind)?, u128::from(whole("time", us)?) * 1000);
        Ok(request(time_ns, kind, small("device", device)?, whole("offset", offset)?, whole("length", len)?))
    }
}

/// Tencent: `timestamp,offset,size,type,volume`, seconds and sectors, type 1 = write.
#[derive(Debug)]
pub(crate) struct Tencent;

impl LineFormat for Tencent {
    fn line(&mut self, line: &[u8]) -> Result<Line, String> {
        if line.starts_with(b"Timestamp") || line.starts_with(b"timestamp") {
            return Ok(HEADER);
        }
        let [seconds, offset, size, kind, volume] = fields::<5>(line, b',')?;
        let kind = match kind.trim_ascii() {
            b"0" => Kind::Read,
            b"1" => Kind::Write,
            _ => return Err("the type is neither 0 (read) nor 1 (write)".into()),
        };
        let time_ns = time(seconds, 1_000_000_000)?;
        Ok(request(time_ns, kind, small("volume", volume)?, sectors("offset", offset)?, sectors("size", size)?))
    }
}

/// SPC: `ASU,LBA,Size,Opcode,Timestamp`, sectors, bytes and seconds; further columns are allowed.
#[derive(Debug)]
pub(crate) struct Spc;

impl LineFormat for Spc {
    fn line(&mut self, line: &[u8]) -> Result<Line, String> {
        let mut columns = line.split(|byte| *byte == b',');
        let mut next = |what: &str| columns.next().ok_or_else(|| format!("the {what} is missing"));
        let device = small("ASU", next("ASU")?)?;
        let offset = sectors("LBA", next("LBA")?)?;
        let len = whole("size", next("size")?)?;
        let kind = read_or_write(next("opcode")?)?;
        Ok(request(time(next("timestamp")?, 1_000_000_000)?, kind, device, offset, len))
    }
}

/// `time device sector sectors type` with type 0 = write, 1 = read: DiskSim (milliseconds, bit 0 of flags)
/// and MQSim (nanoseconds).
#[derive(Debug)]
pub(crate) struct FiveWords {
    pub unit_ns: u64,
}

impl LineFormat for FiveWords {
    fn line(&mut self, line: &[u8]) -> Result<Line, String> {
        let [at, device, sector, count, flags] = words::<5>(line)?;
        let kind = if whole("type", flags)? & 1 == 1 { Kind::Read } else { Kind::Write };
        let (offset, len) = (sectors("sector", sector)?, sectors("number of sectors", count)?);
        Ok(request(time(at, self.unit_ns)?, kind, small("device", device)?, offset, len))
    }
}
