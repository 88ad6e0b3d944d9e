use alloc::vec::Vec;

/// How long a stream keeps its sealed segments before they are due to be cleaned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bound {
    /// For ever: its segments belong to the tail, and are cleaned by its rule when no other is due.
    #[default]
    None,
    /// While there are no more sealed ones than this.
    Segments(u32),
    /// Until they were opened more than this many host page writes ago.
    Age(u64),
}

/// The bound of a stream, and which of its segments are held to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamBound {
    /// The bound.
    pub bound: Bound,
    /// Segments of the stream with a smaller [`crate::Segments::opened_sequence`] belong to the tail.
    pub since: u64,
}

/// How a victim is chosen among segments without a bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tail {
    /// Largest gain per copy times the square root of the age, (1 - u) sqrt(age) / u.
    #[default]
    CostBenefit,
    /// Fewest valid pages, the segment opened first among equals.
    FewestValid,
}

impl Tail {
    /// All rules.
    pub(crate) const ALL: [Self; 2] = [Self::CostBenefit, Self::FewestValid];
    /// The names of [`Tail::ALL`].
    pub(crate) const NAMES: &'static [&'static str] = &["cost-benefit", "fewest-valid"];
}

/// What a placement says of the segments of its streams; the selection `grouped` keeps to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// By stream, in the order in which streams are asked for a victim. Streams past the end have none.
    pub streams: Vec<StreamBound>,
    /// The rule of the tail: all segments that are held to no bound.
    pub tail: Tail,
    /// Differs whenever anything else differs; 0 while nothing was said.
    pub version: u64,
}

impl Bounds {
    /// The bound of a stream for its segments opened as this number; `None` if they belong to the tail.
    pub fn of(&self, stream: u8, opened_sequence: u64) -> Option<Bound> {
        let known = self.streams.get(usize::from(stream))?;
        (known.bound != Bound::None && opened_sequence >= known.since).then_some(known.bound)
    }
}
