//! The study for a reader who has none of the publications.

use crate::reproduce::{Paper, Section};

/// What the study is about, part by part.
pub static PAPER: Paper = Paper {
    name: "league",
    title: "The league of placements: what other programs measured, on one engine",
    source: "FEMU's public tutorials (flash emulator, black-box and FDP mode); Wang et al., Separating data via block invalidation time inference for write amplification reduction in log-structured storage, FAST 2022 (SepBIT)",
    about: &[
        "Flash is written out of place and erased in large segments. When free segments run out, one is chosen (selection), its valid pages are copied, and it is erased. Write amplification counts pages programmed for each page that the host wrote: 1 is the least. Where surviving and new data goes (placement) decides how much there is to copy.",
        "Each publication here measured with a simulator of its own, with its own definitions. Their settings are repeated on margay's engine, as far as they are printed.",
    ],
    words: &[
        ("segment", "unit of erasure; FEMU says line, SepBIT segment"),
        ("garbage share", "invalid pages / (valid + invalid pages), which SepBIT holds at a fixed value by cleaning"),
        ("NoSep", "all data in one stream (margay's m1)"),
        (
            "FK",
            "future knowledge: an oracle that knows when each page will be written again, with the paper's six classes, each a segment long",
        ),
        ("handle", "a stream of the host that a device keeps in segments of its own (FDP)"),
    ],
    sections: &[
        Section {
            title: "FEMU: selections on uniform and skewed writes",
            asked: "2 GiB in 128 lines of 16 MiB, of which 80 % are exported and 6 lines kept free; 4 GiB each of filling, ageing and measuring. Which selection costs least?",
            places: &["uniform", "Zipf 1.2"],
            figures: &[],
            difference: "On uniform writes greedy, FIFO and cost-benefit are within 2 % of the tutorial. Random selection is higher, as theory has it for selection among all lines. On Zipf 1.2 random is met and the others are lower by 4 to 10 %: the tutorial's runs come from fio, whose hashed ranks meet on pages.",
        },
        Section {
            title: "FEMU: hot and cold data on handles of their own",
            asked: "Does it help if the host names what is hot?",
            places: &["hot and cold apart"],
            figures: &[],
            difference: "It does, as published. The tutorial does not print its split, so the figures cannot be held to it.",
        },
        Section {
            title: "SepBIT: skew",
            asked: "Zipf with exponents 0 to 1 over the whole space, cleaning at 15 % garbage by cost-benefit. The paper has SepBIT below all others but the oracle, by more the more skewed the writes are.",
            places: &["skew"],
            figures: &["league-skew"],
            difference: "The space and the segments are a hundredth of the paper's (131,072 pages, segments of 1,311), so that segments have the same share of it. Only the order is held to the paper. Open and free segments come on top of the garbage, as in the paper, which counts that in sealed segments alone. SepBIT is below every online scheme here at every skew, and its gain over one stream grows with it, as published. The oracle is below SepBIT up to an exponent of 0.8 and level with it at 1: its six classes, each a segment long, hold apart only what dies soon. With eight classes, each twice as long as the one before, it is the bound that its name promises.",
        },
        Section {
            title: "SepBIT: garbage share and segment size",
            asked: "Does the order hold at 10, 20 and 25 % garbage, and with segments of 64 to 256 MiB, at Zipf 1?",
            places: &["garbage share and segment size"],
            figures: &["league-garbage", "league-segments"],
            difference: "Scaled as above. SepBIT is below the online schemes in all of them. The oracle with the paper's classes is above SepBIT in most: they do not reach far over small segments.",
        },
    ],
};
