//! scratch
use margay_flash::*;
use margay_ftl::*;
use margay_log::*;
use margay_media::*;
use margay_policy::*;
use rand::{Rng, SeedableRng};
struct V {
    seed: u64,
    mode: u32,
}
impl Visitor for V {
    type Output = (u64, u64, f64);
    fn visit<S: Selection + Send + 'static, P: Placement<Info: Send> + Send + 'static>(
        self,
        s: S,
        p: P,
    ) -> Self::Output {
        let g = Geometry::new(192, 32, 4096).unwrap();
        let cfg = Config { header_pages: 1, reserved_segments: 1, ..Default::default() };
        let n = 5245u32;
        let mut f = Ftl::new(NullFlash::new(g), cfg, s, p, n).unwrap();
        for i in 0..n {
            f.fill(Lpn(i), &[], Hint::None).unwrap();
        }
        f.reset_counters();
        let mut r = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let mut perm: Vec<u32> = (0..n).collect();
        for i in (1..n as usize).rev() {
            perm.swap(i, (r.next_u64() % (i as u64 + 1)) as usize);
        }
        let hot = (n as f64 * 0.1).round() as u64;
        let mut t = 0.0;
        for i in 0..49152u32 {
            let u = (r.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
            t += -(1.0 - u).ln() * 24.609375e6;
            let lpn = match self.mode {
                0 => i % n,
                1 => (r.next_u64() % n as u64) as u32,
                _ => {
                    if r.next_u64() % 10 < 9 {
                        perm[(r.next_u64() % hot) as usize]
                    } else {
                        perm[(hot + r.next_u64() % (n as u64 - hot)) as usize]
                    }
                }
            };
            f.write(Lpn(lpn), &[], Hint::None, t as u64).unwrap();
        }
        f.audit().unwrap();
        let c = f.log().counters();
        let e = &f.log().segments().erases;
        let m = e.iter().map(|x| *x as f64).sum::<f64>() / 192.0;
        let d = (e.iter().map(|x| (*x as f64 - m).powi(2)).sum::<f64>() / 191.0).sqrt();
        (c.erases, c.copies, d)
    }
}
fn main() {
    for mode in 0..3 {
        for (s, p) in [
            ("greedy", "m1"),
            ("cost-benefit:scale=1000s", "m4"),
            ("cat:scale=1000s", "m6:mean=exact,scale=86400s"),
            ("cat", "m6"),
            ("greedy", "m2"),
            ("greedy", "dac"),
            ("fifo", "m1"),
            ("random", "m5"),
            ("d-choices", "dac"),
            ("windowed-greedy", "m3"),
            ("cost-benefit:age=invalidated,shape=linear,scale=1s", "m4"),
        ] {
            let mut sum = (0.0, 0.0, 0.0);
            for seed in 0..8 {
                let sz = Sizing { segments: 192, data_pages: 31, exported_pages: 5245, seed };
                let r = visit(s.parse().unwrap(), p.parse().unwrap(), sz, V { seed, mode });
                sum.0 += r.0 as f64 / 8.0;
                sum.1 += r.1 as f64 / 8.0;
                sum.2 += r.2 / 8.0;
            }
            println!("{mode} {s}+{p}: {:?}", sum);
        }
    }
}
