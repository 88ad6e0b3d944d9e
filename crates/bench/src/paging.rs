//! Page references through the cache over the hybrid-mapped store.

use margay_flash::{Geometry, Lpn};
use margay_format::Plain;
use margay_hybrid::HybridConfig;
use margay_media::NullFlash;
use margay_vm::{CacheConfig, Paging, Scheme, Window};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::time::Instant;

const PAGES: u32 = 1 << 20;
const PAGES_PER_BLOCK: u32 = 64;
const FRAMES: u32 = 1 << 14;
const LOG_BLOCKS: [u32; 6] = [8, 32, 128, 512, 2048, 8192];

type Device = Plain<NullFlash>;

fn paging(scheme: &str, log_blocks: u32, window: Window) -> Result<Paging<Device>, String> {
    let scheme: Scheme = scheme.parse().map_err(|error| format!("{error}"))?;
    let config = HybridConfig::swap(PAGES, log_blocks);
    let segments = PAGES / PAGES_PER_BLOCK + log_blocks + 1;
    let geometry = Geometry::new(segments, PAGES_PER_BLOCK, 2048).map_err(|error| error.to_string())?;
    let cache = CacheConfig { window, ..CacheConfig::new(FRAMES, scheme) };
    Paging::new(Plain::new(NullFlash::new(geometry)), config, cache, |_| true).map_err(|error| error.to_string())
}

/// Nine references of ten go to a set of pages three quarters as large as the cache, the others to any page. A third of
/// the references are writes.
fn refer(paging: &mut Paging<Device>, references: u64, random: &mut Xoshiro256PlusPlus) -> Result<(), String> {
    for _ in 0..references {
        let bits = random.next_u64();
        let span = if bits.is_multiple_of(10) { PAGES } else { FRAMES / 4 * 3 };
        let page = (((bits >> 32) * u64::from(span)) >> 32) as u32;
        paging.reference(Lpn(page), (bits >> 8).is_multiple_of(3)).map_err(|error| error.to_string())?;
    }
    Ok(())
}

pub fn run() -> Result<(), String> {
    const WARM_UP: u64 = 4_000_000;
    const REFERENCES: u64 = 20_000_000;
    println!(
        "2 GiB of pages, cache of 32 MiB, nine references of ten in 24 MiB, a third writes; {REFERENCES} references, 13 % misses"
    );
    println!("{:>10} {:>10} {:>14} {:>14} {:>10}", "log blocks", "scheme", "M references/s", "merges", "to RR");
    for log_blocks in LOG_BLOCKS {
        let mut first = None;
        for scheme in ["lda-gc4", "lda-gc5"] {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
            let mut paging = paging(scheme, log_blocks, Window::All)?;
            refer(&mut paging, WARM_UP, &mut random)?;
            let before = paging.cache().stats().random.count;
            let start = Instant::now();
            refer(&mut paging, REFERENCES, &mut random)?;
            let rate = REFERENCES as f64 / start.elapsed().as_secs_f64() / 1e6;
            let merges = paging.cache().stats().random.count - before;
            let to_first = rate / *first.get_or_insert(rate);
            println!("{log_blocks:>10} {scheme:>10} {rate:>14.1} {merges:>14} {to_first:>10.2}");
        }
    }
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut one = paging("lda-gc5", 32, Window::All)?;
    refer(&mut one, 1_000_000, &mut random)?;
    let (frames, pages) = one.cache().memory_bytes();
    println!(
        "memory: {:.1} bytes for each frame of the cache, {:.1} for each page; the store {:.2} for each page",
        frames as f64 / f64::from(FRAMES),
        pages as f64 / f64::from(PAGES),
        one.store().memory_bytes() as f64 / f64::from(PAGES)
    );
    Ok(())
}

/// One run under callgrind: `paging-count SCHEME REFERENCES`.
pub fn count(args: &[String]) -> Result<(), String> {
    let [scheme, references] = args else { return Err("usage: paging-count SCHEME REFERENCES".into()) };
    let references = references.parse().map_err(|_| format!("'{references}' is not a number of references"))?;
    let mut paging = paging(scheme, 32, Window::All)?;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    refer(&mut paging, references, &mut random)?;
    println!("{}", paging.cache().stats().misses);
    Ok(())
}
