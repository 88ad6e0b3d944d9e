//! The devices of a trace of several, beside each other on one device.

use crate::disk::MeasuredDisk;
use margay_workload::{OpKind, PageOp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What one device of a trace of several cost in a run. A page belongs to the device that wrote it last: that is its only one
/// where addresses are numbered in the order of first write, and devices may share pages where they are folded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TenantRow {
    /// The device, as the trace names it.
    pub device: String,
    /// Page writes to its pages.
    pub host_writes: u64,
    /// Pages that it was the first to write.
    pub footprint_pages: u64,
    /// Copies of its pages.
    pub copies: u64,
    /// Its share of all copies.
    pub copies_share: f64,
    /// (host writes + copies) / host writes of its pages.
    pub wa: f64,
}

/// The devices that are told apart; the others count as the last of them.
const MAX_TENANTS: usize = 1 << 12;

/// Which device of a trace a page belongs to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tenants {
    devices: Vec<Tenant>,
    places: BTreeMap<u32, u16>,
    has_others: bool,
    /// The device that requests go to now.
    at: u16,
    /// By logical page, as soon as there are two of them.
    owners: Vec<u16>,
    /// One more than the highest page that was written.
    end: usize,
}

#[derive(Clone, Debug, Default)]
struct Tenant {
    device: u32,
    name: String,
    footprint_pages: u64,
}

impl Tenants {
    /// Requests go to this device now.
    #[inline]
    pub fn is_at(&mut self, device: u32) {
        if self.devices.get(usize::from(self.at)).is_none_or(|tenant| tenant.device != device) {
            self.turn_to(device);
        }
    }

    #[cold]
    fn turn_to(&mut self, device: u32) {
        if let Some(place) = self.places.get(&device) {
            self.at = *place;
            return;
        }
        if self.devices.len() < MAX_TENANTS {
            self.places.insert(device, self.devices.len() as u16);
            self.devices.push(Tenant { device, ..Tenant::default() });
        } else {
            self.has_others = true;
        }
        self.at = (self.devices.len() - 1) as u16;
    }

    /// The page was written, for the first time or again.
    #[inline]
    pub fn written(&mut self, lpn: u32, is_new: bool) {
        if is_new {
            self.devices[usize::from(self.at)].footprint_pages += 1;
            self.end = self.end.max(lpn as usize + 1);
        }
        if self.devices.len() > 1 {
            if self.owners.len() < self.end {
                // What was written so far belongs to the first.
                self.owners.resize(self.end, 0);
            }
            self.owners[lpn as usize] = self.at;
        }
    }

    /// Asks for the names, once all devices are known.
    pub fn name(&mut self, name: impl Fn(u32) -> String) {
        for tenant in &mut self.devices {
            tenant.name = name(tenant.device);
        }
        if self.has_others {
            self.devices[MAX_TENANTS - 1].name = "others".into();
        }
    }

    /// Starts counting what each device costs in a run, if there are several.
    pub fn watch(&self, disk: &mut MeasuredDisk) -> Option<Watch<'_>> {
        (self.devices.len() > 1).then(|| {
            disk.count_copies_by(self.owners.clone());
            Watch { tenants: self, writes: vec![0; self.devices.len()] }
        })
    }
}

/// Counts the host writes of each device in a run.
#[derive(Debug)]
pub(crate) struct Watch<'a> {
    tenants: &'a Tenants,
    writes: Vec<u64>,
}

impl Watch<'_> {
    /// These operations were done.
    pub fn count(&mut self, ops: &[PageOp]) {
        for op in ops.iter().filter(|op| op.kind == OpKind::Write) {
            let owner = self.tenants.owners.get(op.lpn as usize).copied().unwrap_or(0);
            self.writes[usize::from(owner)] += 1;
        }
    }

    /// What each device cost, in the order in which the trace names them.
    pub fn rows(self, disk: &MeasuredDisk) -> Vec<TenantRow> {
        let all = disk.copies_by_group().iter().sum::<u64>().max(1) as f64;
        let copies = disk.copies_by_group().iter().copied().chain(std::iter::repeat(0));
        let row = |((tenant, host_writes), copies): ((&Tenant, u64), u64)| TenantRow {
            device: tenant.name.clone(),
            host_writes,
            footprint_pages: tenant.footprint_pages,
            copies,
            copies_share: copies as f64 / all,
            wa: (host_writes + copies) as f64 / host_writes.max(1) as f64,
        };
        self.tenants.devices.iter().zip(self.writes).zip(copies).map(row).collect()
    }
}
