//! SepBIT's synthetic workloads: Zipf over the whole space, exponents 0 to 1, at a share of garbage that cleaning keeps.

use super::{values, wa};
use crate::experiment::{Capacity, Experiment, Limit, Source};
use crate::reproduce::{Claim, Curve, Figure, Point, Reproduction};
use crate::{LabError, Outcome};
use margay_media::DeviceSpec;
use margay_policy::PlacementSpec;
use std::collections::BTreeMap;

/// A hundredth of the paper's 13,107,200 pages.
const EXPORTED_PAGES: u32 = 131_072;
/// Zipf exponents.
const EXPONENTS: [f64; 6] = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0];
/// Share of garbage at which the paper cleans.
const GARBAGE: f64 = 0.15;
const GARBAGE_SWEEP: [f64; 3] = [0.10, 0.20, 0.25];
/// A hundredth of 64, 128, 256 and 512 MiB, in pages; the paper's usual size is the last.
const SEGMENTS: [(u32, u32); 4] = [(64, 164), (128, 328), (256, 655), (512, 1311)];
const SEGMENT_PAGES: u32 = SEGMENTS[3].1;
/// Cost-benefit as in the paper's program.
const SELECTION: &str = "cost-benefit:shape=sqrt";
const DEVICE_WRITES: f64 = 10.0;

/// The paper's name of a scheme, and ours.
const ENTRANTS: [(&str, &str); 12] = [
    ("NoSep", "m1"),
    ("SepGC", "sepgc"),
    ("DAC", "dac:regions=6,threshold=1d"),
    ("SFS", "sfs"),
    ("ML", "multilog"),
    ("ETI", "eti"),
    ("MQ", "mq"),
    ("SFR", "sfr"),
    ("WARCIP", "warcip"),
    ("FADaC", "fadac"),
    ("SepBIT", "sepbit"),
    ("FK", "fk:preset=paper"),
];
/// Placements that came after the paper, and the oracle with classes that reach over the device.
const LATER: [(&str, &str); 4] = [
    ("MiDAS", "midas"),
    ("DOGI", "dogi"),
    ("NoDaP", "nodap"),
    ("FK, doubling classes", "fk:classes=8,widths=doubling"),
];

/// What a cell varies.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Setting {
    exponent: f64,
    garbage: f64,
    segment_pages: u32,
}

/// The runs of the league.
pub(super) struct League {
    settings: Vec<Setting>,
    entrants: Vec<(&'static str, PlacementSpec)>,
    absent: Vec<&'static str>,
    cells: Vec<(Setting, &'static str, Experiment)>,
    unfit: Vec<String>,
}

impl League {
    /// All placements that the registry has, those that it lacks being left out.
    pub fn of_the_registry(tables_only: bool) -> Result<Self, LabError> {
        let usual = |exponent| Setting { exponent, garbage: GARBAGE, segment_pages: SEGMENT_PAGES };
        let mut settings: Vec<Setting> = EXPONENTS.map(usual).to_vec();
        if !tables_only {
            settings.extend(GARBAGE_SWEEP.map(|garbage| Setting { garbage, ..usual(1.0) }));
            settings.extend(SEGMENTS[..3].iter().map(|(_, pages)| Setting { segment_pages: *pages, ..usual(1.0) }));
        }
        let (mut entrants, mut absent) = (Vec::new(), Vec::new());
        for (name, text) in ENTRANTS.into_iter().chain(LATER) {
            match text.parse::<PlacementSpec>() {
                Ok(placement) => entrants.push((name, placement)),
                Err(_) => absent.push(name),
            }
        }
        let (mut cells, mut unfit) = (Vec::new(), Vec::new());
        for setting in &settings {
            for (name, placement) in &entrants {
                let cell = setting.experiment(*placement)?;
                let limit = cell.config().limit_pages(&cell.device.geometry()?, placement.streams().into());
                match limit.is_ok_and(|limit| EXPORTED_PAGES <= limit) {
                    true => cells.push((*setting, *name, cell)),
                    false => unfit.push(format!("{name} ({} streams) at {}", placement.streams(), setting.name())),
                }
            }
        }
        Ok(Self { settings, entrants, absent, cells, unfit })
    }

    pub fn cells(&self) -> impl Iterator<Item = &Experiment> {
        self.cells.iter().map(|(_, _, cell)| cell)
    }

    pub fn judge(&self, outcomes: &[Vec<Outcome>], out: &mut Reproduction) {
        let found = |setting: Setting, name: &str| {
            let at = self.cells.iter().position(|(of, entrant, _)| *of == setting && *entrant == name)?;
            Some(&outcomes[at])
        };
        let is_of_the_paper = |name: &str| ENTRANTS.iter().any(|(other, _)| *other == name);
        for setting in &self.settings {
            let Some(sepbit) = found(*setting, "SepBIT") else { continue };
            let place = if setting.garbage == GARBAGE && setting.segment_pages == SEGMENT_PAGES {
                "skew"
            } else {
                "garbage share and segment size"
            };
            for (name, _) in self.entrants.iter().filter(|(name, _)| is_of_the_paper(name) && *name != "SepBIT") {
                let Some(other) = found(*setting, name) else { continue };
                let claim =
                    Claim::new(place, format!("SepBIT against {name}, {}", setting.name()), "write amplification");
                // Without skew there is nothing to infer, and nothing is claimed.
                let claim = match (*name, setting.exponent == 0.0) {
                    (_, true) => claim,
                    ("FK", _) => claim.above(wa(other).0).note(
                        "its six classes reach over the host writes of six segments; what lives longer is mixed in the last, which is most of the data where segments are small or skew is high",
                    ),
                    _ => claim.below(wa(other).0),
                };
                out.comparisons.push(claim.published(if *name == "FK" { "above" } else { "below" }).judge(wa(sepbit)));
            }
        }
        self.show(&found, out);
    }

    fn show<'a>(&self, found: &dyn Fn(Setting, &str) -> Option<&'a Vec<Outcome>>, out: &mut Reproduction) {
        let figure = |name: &str, title: &str, x: &str, of: &dyn Fn(Setting) -> Option<f64>| {
            let curve = |name: &str| {
                let points = self
                    .settings
                    .iter()
                    .filter_map(|setting| Some(Point::mean(of(*setting)?, &values(found(*setting, name)?))));
                let mut points: Vec<Point> = points.collect();
                points.sort_by(|a, b| a.x.total_cmp(&b.x));
                Curve::new(name, points)
            };
            let curves: Vec<Curve> = self.entrants.iter().map(|(name, _)| curve(name)).collect();
            let (x, y) = (x.into(), "write amplification".into());
            Figure { name: name.into(), title: title.into(), x, y, curves, ..Figure::default() }
        };
        let is_usual = |setting: Setting| setting.garbage == GARBAGE && setting.segment_pages == SEGMENT_PAGES;
        let by_skew = |setting: Setting| is_usual(setting).then_some(setting.exponent);
        out.figures.push(figure("league-skew", "Placements by skew, 15 % garbage", "Zipf exponent", &by_skew));
        if self.settings.iter().any(|setting| !is_usual(*setting)) {
            let by_garbage = |setting: Setting| {
                (setting.segment_pages == SEGMENT_PAGES && setting.exponent == 1.0).then_some(100.0 * setting.garbage)
            };
            let title = "Placements by share of garbage, Zipf 1";
            out.figures.push(figure("league-garbage", title, "garbage, % of written pages", &by_garbage));
            let by_size = |setting: Setting| {
                (setting.garbage == GARBAGE && setting.exponent == 1.0).then_some(setting.segment_pages.into())
            };
            out.figures.push(figure(
                "league-segments",
                "Placements by segment size, Zipf 1",
                "pages in a segment",
                &by_size,
            ));
        }
        let mut means = BTreeMap::new();
        for (setting, name, _) in &self.cells {
            if by_skew(*setting).is_some_and(|exponent| exponent > 0.0)
                && let Some(outcomes) = found(*setting, name)
            {
                let sum: &mut (f64, f64) = means.entry(*name).or_default();
                (sum.0, sum.1) = (sum.0 + wa(outcomes).0, sum.1 + 1.0);
            }
        }
        let mut ranked: Vec<(&str, f64)> = means.into_iter().map(|(name, (sum, count))| (name, sum / count)).collect();
        ranked.sort_by(|a, b| a.1.total_cmp(&b.1));
        let ranked: Vec<String> = ranked.iter().map(|(name, mean)| format!("{name} {mean:.3}")).collect();
        out.findings.push(format!("mean write amplification over Zipf 0.2 to 1, lowest first: {}", ranked.join(", ")));
        if !self.absent.is_empty() {
            out.findings.push(format!("left out, because margay does not have them: {}", self.absent.join(", ")));
        }
        if !self.unfit.is_empty() {
            let unfit = self.unfit.join(", ");
            out.findings.push(format!("left out, because the spare room is too small for their streams: {unfit}"));
        }
    }
}

impl Setting {
    fn name(&self) -> String {
        let Self { exponent, garbage, segment_pages } = self;
        format!("Zipf {exponent}, garbage {:.0} %, segments of {segment_pages} pages", 100.0 * garbage)
    }

    fn experiment(&self, placement: PlacementSpec) -> Result<Experiment, LabError> {
        let mut device = DeviceSpec::load("ideal-1gb")?;
        device.pages_per_segment = self.segment_pages;
        let pages = f64::from(EXPORTED_PAGES) / (1.0 - self.garbage);
        let source = if self.exponent == 0.0 { "random".into() } else { format!("zipf:{}", self.exponent) };
        let mut cell = Experiment::new(device, Source::Workload(source.parse()?));
        // The paper keeps garbage in sealed segments alone: open and free ones come on top.
        let aside = u32::from(placement.streams()) + cell.low_water;
        cell.device.segments = (pages / f64::from(self.segment_pages)).ceil() as u32 + aside;
        (cell.selection, cell.placement) = (SELECTION.parse()?, placement);
        cell.capacity = Capacity::Pages(EXPORTED_PAGES);
        (cell.limit, cell.warm_up) = (Limit::DeviceWrites(DEVICE_WRITES), Some(0.5));
        Ok(cell)
    }
}
