use crate::{Meter, RamFlash, Strict};
use margay_flash::{Flash, Ppn};

/// A device whose bytes tests and fault layers can change without an operation of the device.
pub trait Damage: Flash {
    /// The bytes of one page with its spare area.
    fn page_bytes_mut(&mut self, ppn: Ppn) -> &mut [u8];
}

impl Damage for RamFlash {
    fn page_bytes_mut(&mut self, ppn: Ppn) -> &mut [u8] {
        Self::page_bytes_mut(self, ppn)
    }
}

impl<F: Damage> Damage for Strict<F> {
    fn page_bytes_mut(&mut self, ppn: Ppn) -> &mut [u8] {
        self.inner_mut().page_bytes_mut(ppn)
    }
}

impl<F: Damage> Damage for Meter<F> {
    fn page_bytes_mut(&mut self, ppn: Ppn) -> &mut [u8] {
        self.inner_mut().page_bytes_mut(ppn)
    }
}
