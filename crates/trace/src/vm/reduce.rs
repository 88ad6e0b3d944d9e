use super::Reference;

/// Leaves out an access if its page is among the last records, and, if it is a write, among them as a write. A page's
/// recency is then off by at most the window, and a write is left out only if the page was written within the window.
#[derive(Clone, Debug)]
pub struct Reducer {
    recent: Vec<u64>,
    window: usize,
    at: usize,
}

const NO_PAGE: u64 = u64::MAX;

impl Reducer {
    /// Looks back `window` records; with 0 every access is kept.
    pub fn new(window: u16) -> Self {
        Self { recent: vec![NO_PAGE; usize::from(window)], window: window.into(), at: 0 }
    }

    /// Whether the access is to be recorded. If so, it counts as recorded for those that follow.
    #[inline]
    pub fn keeps(&mut self, touch: Reference) -> bool {
        if self.window == 0 {
            return true;
        }
        let (read, write) = (touch.page << 1, touch.page << 1 | 1);
        if self.recent.iter().any(|seen| *seen == write || (!touch.write && *seen == read)) {
            return false;
        }
        self.recent[self.at] = if touch.write { write } else { read };
        self.at = (self.at + 1) % self.window;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_is_left_out_within_the_window_and_a_write_only_after_a_write() {
        let mut reducer = Reducer::new(2);
        let mut keeps = |page, write| reducer.keeps(Reference { page, write });
        assert!(keeps(1, false) && !keeps(1, false));
        assert!(keeps(1, true) && !keeps(1, true) && !keeps(1, false));
        assert!(keeps(2, false) && keeps(3, true));
        assert!(keeps(1, false), "both records of page 1 are out of the window");
    }
}
