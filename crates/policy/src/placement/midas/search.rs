//! The search for the sizes of groups: by trial of the model, in slices.

use super::intervals::Distribution;
use super::model::{Hot, MAX_GROUPS, Prediction, Room, predict};
use alloc::vec::Vec;

/// Max size of the hot group, in segments.
const MAX_HOT: u32 = 29;
/// The hot group grows no more when one more segment would take a smaller share of the traffic than this.
const LITTLE_TRAFFIC: f64 = 0.005;
/// Rounds in which each size is tried again.
const ROUNDS: u8 = 4;
/// Sizes up to this are all tried, larger ones in steps of a 32nd.
const ALL_SIZES: u32 = 64;

/// What is being tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Vary {
    /// Sizes of the hot group.
    Hot,
    /// Sizes of the group at this place after it.
    Size(usize),
    /// One group more.
    Append,
}

/// A search under way.
#[derive(Clone, Debug)]
pub(super) struct Search {
    distribution: Distribution,
    room: Room,
    /// The hot groups that are tried, by size.
    hots: Vec<Hot>,
    hot: usize,
    /// Sizes of the groups between the hot one and the last.
    sizes: Vec<u32>,
    max_sizes: usize,
    /// 0 while groups are added.
    round: u8,
    vary: Vary,
    candidate: u32,
    /// The best of what is being tried.
    found: Option<(Prediction, u32)>,
    /// The best so far.
    best: Option<(Prediction, usize)>,
    /// Whether this round has made anything better.
    improved: bool,
}

impl Search {
    /// A search for max `groups` groups. `measured` is the hot group as it was; `None` to choose one by the model.
    pub fn new(distribution: Distribution, room: Room, measured: Option<Hot>, groups: usize) -> Self {
        let modelled = |segments: u32| {
            let (time, traffic) = distribution.time_to_fill(segments.into())?;
            Some(Hot { segments, traffic, valid: 0.0, time })
        };
        let mut hots: Vec<_> = match measured {
            Some(hot) => [hot].into(),
            None => (1..=MAX_HOT.min(room.segments / 8)).map_while(modelled).collect(),
        };
        let gains = hots.windows(2).map(|pair| pair[1].traffic - pair[0].traffic);
        let hot = gains.take_while(|gain| *gain >= LITTLE_TRAFFIC).count();
        hots.truncate(hot + 1);
        let max_sizes = groups.min(MAX_GROUPS).saturating_sub(2);
        let mut search = Self {
            distribution,
            room,
            hots,
            hot,
            sizes: Vec::with_capacity(MAX_GROUPS),
            max_sizes,
            round: 0,
            vary: Vary::Append,
            candidate: 0,
            found: None,
            best: None,
            improved: false,
        };
        search.keep(search.try_sizes(search.hot, None, &mut Vec::with_capacity(MAX_GROUPS)), search.hot);
        search.next_candidate();
        search
    }

    /// Tries up to `budget` choices. True if the search is over.
    pub fn step(&mut self, budget: u32) -> bool {
        let mut sizes = Vec::with_capacity(MAX_GROUPS);
        for _ in 0..budget {
            if self.hots.is_empty() {
                return true;
            }
            let tried = match self.vary {
                Vary::Hot => self.try_sizes(self.candidate as usize - 1, None, &mut sizes),
                Vary::Size(at) => self.try_sizes(self.hot, Some((at, self.candidate)), &mut sizes),
                Vary::Append => self.try_sizes(self.hot, Some((self.sizes.len(), self.candidate)), &mut sizes),
            };
            if let Some(tried) = tried
                && self.found.is_none_or(|(found, _)| tried.wa < found.wa)
            {
                self.found = Some((tried, self.candidate));
            }
            if !self.next_candidate() && !self.next_variation() {
                return true;
            }
        }
        false
    }

    /// The best choice, once the search is over.
    pub fn best(&self) -> Option<Prediction> {
        self.best.map(|(prediction, _)| prediction)
    }

    fn try_sizes(&self, hot: usize, other: Option<(usize, u32)>, sizes: &mut Vec<u32>) -> Option<Prediction> {
        sizes.clone_from(&self.sizes);
        if let Some((at, size)) = other {
            sizes.resize(sizes.len().max(at + 1), 0);
            sizes[at] = size;
        }
        predict(&self.distribution, &self.room, self.hots.get(hot)?, sizes)
    }

    /// Keeps a prediction if it is the best so far. True if it is.
    fn keep(&mut self, prediction: Option<Prediction>, hot: usize) -> bool {
        match prediction {
            Some(prediction) if self.best.is_none_or(|(best, _)| prediction.wa < best.wa) => {
                self.best = Some((prediction, hot));
                true
            }
            _ => false,
        }
    }

    /// The next value to be tried. False if all were.
    fn next_candidate(&mut self) -> bool {
        self.candidate += if self.candidate < ALL_SIZES { 1 } else { self.candidate / 32 };
        let last = match self.vary {
            Vary::Hot => self.hots.len() as u32,
            _ => self.room.segments - (self.room.margin() as u32).min(self.room.segments),
        };
        self.candidate <= last
    }

    /// Takes over what was found, and goes on to what is varied next. False if the search is over.
    fn next_variation(&mut self) -> bool {
        let found = self.found.take();
        if self.round == 0 {
            // A group more is kept even if it costs more: the one after it may make up for it.
            if let Some((prediction, size)) = found {
                self.sizes.push(size);
                self.keep(Some(prediction), self.hot);
            }
            if found.is_none() || self.sizes.len() >= self.max_sizes {
                return self.next_round();
            }
            self.candidate = 0;
            return self.next_candidate();
        }
        if let Some((prediction, candidate)) = found {
            let hot = if self.vary == Vary::Hot { candidate as usize - 1 } else { self.hot };
            if self.keep(Some(prediction), hot) {
                self.improved = true;
                self.take_best();
            }
        }
        loop {
            self.candidate = 0;
            self.vary = match self.vary {
                Vary::Hot => Vary::Size(0),
                Vary::Size(at) => Vary::Size(at + 1),
                Vary::Append => return self.next_round(),
            };
            if matches!(self.vary, Vary::Size(at) if at >= self.sizes.len()) {
                if self.sizes.len() >= self.max_sizes {
                    return self.next_round();
                }
                self.vary = Vary::Append;
            }
            if self.next_candidate() {
                return true;
            }
        }
    }

    fn next_round(&mut self) -> bool {
        let goes_on = self.round == 0 || self.improved;
        self.take_best();
        self.round += 1;
        (self.vary, self.candidate, self.improved) = (Vary::Hot, 0, false);
        goes_on && self.best.is_some() && self.round <= ROUNDS && self.next_candidate()
    }

    fn take_best(&mut self) {
        if let Some((best, hot)) = self.best {
            self.hot = hot;
            self.sizes.clear();
            self.sizes.extend(&best.segments[1..best.groups - 1]);
        }
    }
}
