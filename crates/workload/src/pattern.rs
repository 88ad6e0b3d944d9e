use crate::permutation::Permutation;
use crate::spec::{HotLayout, Mix, Pattern};
use crate::zipf::{Zipf, unit};
use rand::Rng;

/// A number in `0..len`: the high part of a product (Lemire 2019), with a bias of less than len / 2^64.
#[inline(always)]
fn below(generator: &mut impl Rng, len: u32) -> u32 {
    ((u128::from(generator.next_u64()) * u128::from(len)) >> 64) as u32
}

/// Maps ranks to pages, so that low ranks, which are favoured, lie where the layout says.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    Scattered(Permutation),
    Contiguous,
    Strided { pages: u32, favoured: u32 },
}

impl Place {
    fn new(layout: HotLayout, pages: u32, favoured: u32, seed: u64) -> Self {
        match layout {
            HotLayout::Scattered => Self::Scattered(Permutation::new(pages, seed)),
            HotLayout::Contiguous => Self::Contiguous,
            HotLayout::Strided => Self::Strided { pages, favoured: favoured.max(1) },
        }
    }

    #[inline]
    fn page(self, rank: u32) -> u32 {
        match self {
            Self::Scattered(permutation) => permutation.image(rank),
            Self::Contiguous => rank,
            Self::Strided { pages, favoured } => {
                // Favoured page k is at floor(k * pages / favoured); the others fill the gaps in order.
                let (pages, favoured, rank) = (u64::from(pages), u64::from(favoured), u64::from(rank));
                if rank < favoured {
                    return (rank * pages / favoured) as u32;
                }
                let other = rank - favoured;
                // The number of favoured pages before this one: an estimate by the same formula, then corrected.
                let mut before = other * favoured / (pages - favoured).max(1);
                while before < favoured && before * pages / favoured <= other + before {
                    before += 1;
                }
                while before > 0 && (before - 1) * pages / favoured > other + before - 1 {
                    before -= 1;
                }
                (other + before) as u32
            }
        }
    }
}

/// A share of the accesses as a limit of random numbers, and a share of the pages as their number: neither none nor all.
fn shares(access: f64, space: f64, pages: u32) -> (u64, u32) {
    let count = ((space * f64::from(pages)).round() as u32).clamp(1, pages.max(2) - 1);
    ((access * u64::MAX as f64) as u64, count)
}

/// The state of a pattern that runs on a number of pages.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    Sequential {
        next: u32,
    },
    Random,
    HotCold {
        access: u64,
        hot: u32,
        place: Place,
    },
    /// The hot set begins at page `start`, and moves on in `left` operations.
    Moving {
        access: u64,
        hot: u32,
        period: f64,
        start: u32,
        left: f64,
        place: Place,
    },
    Log {
        access: u64,
        len: u32,
        next: u32,
    },
    Zipf {
        zipf: Zipf,
        place: Place,
    },
    Mix {
        zones: Vec<(f64, u32, u32)>,
        sizes: Vec<(f64, u32)>,
        next: u32,
        left: u32,
        zone: u8,
    },
}

impl Source {
    /// `pattern` must not be [`Pattern::Phases`], which the workload runs one by one.
    pub fn new(pattern: &Pattern, pages: u32, seed: u64) -> Self {
        match pattern {
            Pattern::Sequential | Pattern::Phases { .. } => Self::Sequential { next: 0 },
            Pattern::Random => Self::Random,
            Pattern::HotCold { access, space, layout } => {
                let (access, hot) = shares(*access, *space, pages);
                Self::HotCold { access, hot, place: Place::new(*layout, pages, hot, seed) }
            }
            Pattern::Moving { access, space, period, layout } => {
                let (access, hot) = shares(*access, *space, pages);
                let place = Place::new(*layout, pages, hot, seed);
                Self::Moving { access, hot, period: *period, start: 0, left: *period, place }
            }
            Pattern::Log { access, space } => {
                let (access, len) = shares(*access, *space, pages);
                Self::Log { access, len, next: 0 }
            }
            Pattern::Zipf { exponent, layout } => {
                Self::Zipf { zipf: Zipf::new(pages, *exponent), place: Place::new(*layout, pages, pages, seed) }
            }
            Pattern::Mix(mix) => Self::mix(mix, pages),
        }
    }

    fn mix(mix: &Mix, pages: u32) -> Self {
        let (mut zones, mut sizes) = (Vec::new(), Vec::new());
        let accesses: f64 = mix.zones.iter().map(|zone| zone.access).sum();
        let weights: f64 = mix.sizes.iter().map(|size| size.weight).sum();
        let (mut space, mut sum, mut start) = (0.0, 0.0, 0);
        for zone in &mix.zones {
            space += zone.space;
            sum += zone.access / accesses;
            let end = ((space * f64::from(pages)).round() as u32).clamp(start, pages);
            // A zone that is smaller than a page shares the page before it.
            let first = start.min(pages - 1);
            zones.push((sum, first, (end - start).max(1)));
            start = end;
        }
        sum = 0.0;
        for size in &mix.sizes {
            sum += size.weight / weights;
            sizes.push((sum, size.pages));
        }
        Self::Mix { zones, sizes, next: 0, left: 0, zone: 0 }
    }

    /// Calls `take` with one page after the other until it returns false, and with the stream that the page belongs to: the hot
    /// or the cold set, the zone.
    pub fn draw<R: Rng>(
        &mut self,
        pages: u32,
        generator: &mut R,
        mut take: impl FnMut(&mut R, u32, Option<u8>) -> bool,
    ) {
        match self {
            Self::Sequential { next } => loop {
                let page = *next;
                *next = if page + 1 == pages { 0 } else { page + 1 };
                if !take(generator, page, None) {
                    return;
                }
            },
            Self::Random => loop {
                let page = below(generator, pages);
                if !take(generator, page, None) {
                    return;
                }
            },
            Self::HotCold { access, hot, place } => loop {
                let is_hot = generator.next_u64() < *access;
                let rank = if is_hot { below(generator, *hot) } else { *hot + below(generator, pages - *hot) };
                if !take(generator, place.page(rank), Some(u8::from(!is_hot))) {
                    return;
                }
            },
            Self::Moving { access, hot, period, start, left, place } => loop {
                let is_hot = generator.next_u64() < *access;
                let rank = if is_hot { below(generator, *hot) } else { *hot + below(generator, pages - *hot) };
                let at = (u64::from(*start) + u64::from(rank)) % u64::from(pages);
                *left -= 1.0;
                while *left <= 0.0 {
                    *left += *period;
                    *start = if *start + 1 == pages { 0 } else { *start + 1 };
                }
                if !take(generator, place.page(at as u32), Some(u8::from(!is_hot))) {
                    return;
                }
            },
            Self::Log { access, len, next } => loop {
                let is_log = generator.next_u64() < *access;
                let page = if is_log { *next } else { *len + below(generator, pages - *len) };
                if is_log {
                    *next = if page + 1 == *len { 0 } else { page + 1 };
                }
                if !take(generator, page, Some(u8::from(!is_log))) {
                    return;
                }
            },
            Self::Zipf { zipf, place } => loop {
                let rank = zipf.sample(generator);
                if !take(generator, place.page(rank), None) {
                    return;
                }
            },
            Self::Mix { zones, sizes, next, left, zone } => loop {
                if *left == 0 {
                    let (pick, size) = (unit(generator), unit(generator));
                    let at = zones.iter().position(|(sum, _, _)| pick < *sum).unwrap_or(zones.len() - 1);
                    let (_, start, len) = zones[at];
                    *zone = at.min(u8::MAX.into()) as u8;
                    let (_, size) = *sizes.iter().find(|(sum, _)| size < *sum).unwrap_or(&sizes[sizes.len() - 1]);
                    let size = size.min(pages);
                    *next = ((start + below(generator, len)) / size * size).min(pages - size);
                    *left = size;
                }
                let page = *next;
                *next += 1;
                *left -= 1;
                if !take(generator, page, Some(*zone)) {
                    return;
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strided_places_are_a_bijection() {
        for (pages, favoured) in [(10, 3), (5245, 525), (7, 6), (100, 1), (64, 32)] {
            let place = Place::Strided { pages, favoured };
            let mut seen = vec![false; pages as usize];
            for rank in 0..pages {
                let page = place.page(rank);
                assert!(!std::mem::replace(&mut seen[page as usize], true), "{favoured} of {pages}: page {page} twice");
            }
        }
    }
}
