//! scratch
use margay_flash::*;
use margay_ftl::*;
use margay_log::*;
use margay_media::*;
use margay_policy::*;
use rand::{Rng, SeedableRng};
struct V {
    segs: u32,
    writes: u64,
}
impl Visitor for V {
    type Output = ();
    fn visit<S: Selection + Send + 'static, P: Placement<Info: Send> + Send + 'static>(self, s: S, p: P) {
        let g = Geometry::new(self.segs, 256, 4096).unwrap();
        let cfg = Config::default();
        let n = (g.pages() as f64 * 0.9) as u32;
        let mut f = Ftl::new(NullFlash::new(g), cfg, s, p, n).unwrap();
        for i in 0..n {
            f.fill(Lpn(i), &[], Hint::None).unwrap();
        }
        f.reset_counters();
        let mut r = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(1);
        let warm = self.writes / 2;
        for t in 0..warm {
            let lpn = ((r.next_u64() >> 32) * n as u64 >> 32) as u32;
            f.write(Lpn(lpn), &[], Hint::None, t).unwrap();
        }
        f.reset_counters();
        let t0 = std::time::Instant::now();
        for t in 0..self.writes {
            let lpn = ((r.next_u64() >> 32) * n as u64 >> 32) as u32;
            f.write(Lpn(lpn), &[], Hint::None, warm + t).unwrap();
        }
        let e = t0.elapsed().as_secs_f64();
        let c = f.log().counters();
        println!(
            "{:.2} M host writes/s  {:.1} M programs/s WA {:.3} {:.1} B/page",
            self.writes as f64 / e / 1e6,
            c.programs() as f64 / e / 1e6,
            c.write_amplification().unwrap(),
            f.memory_bytes() as f64 / g.pages() as f64
        );
    }
}
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let segs: u32 = a[1].parse().unwrap();
    let w: u64 = a[2].parse().unwrap();
    let sz = Sizing { segments: segs, data_pages: 256, exported_pages: (segs as f64 * 256.0 * 0.9) as u32, seed: 1 };
    visit(a[3].parse().unwrap(), a[4].parse().unwrap(), sz, V { segs, writes: w });
}
