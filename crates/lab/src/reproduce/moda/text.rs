//! The study for a reader who does not have the paper.

use crate::reproduce::{Paper, Section};

/// What the study is about, part by part.
pub static PAPER: Paper = Paper {
    name: "moda",
    title: "MODA: where a flash file system should put its pages",
    source: "S. Baek, S. Ahn, J. Choi, D. Lee, S. H. Noh, Uniformity improving page allocation for flash memory file systems, EMSOFT 2007; Design Automation for Embedded Systems 13 (2009)",
    about: &[
        "A file system on raw flash has to clean: segments that hold valid and invalid pages together are copied out and erased. The paper describes the state of a device by three numbers and derives from them what a cleaning of the whole device costs (equations 2 and 3). Of the three, uniformity is the one that a file system can influence, by choosing where it puts a page.",
        "YAFFS puts all pages one after the other (sequential). The paper's allocator, MODA, keeps headers of files apart from data (its static property), and tells files that are modified often from those that are not (its dynamic property). It was measured with seven benchmarks on a 64 MB part.",
        "Here both run in margay's file system on a model of that part. The benchmarks' sizes are not in the paper; they were fitted to utilization and invalidity in its Table 1, and everything else in that table is a test.",
    ],
    words: &[
        ("utilization, u", "share of the pages that are valid"),
        ("invalidity, i", "share of the pages that are invalid"),
        ("uniformity, p", "share of the segments that do not hold valid and invalid pages together"),
        ("estimated", "by equation 2 from u, i and p"),
        (
            "erases, copies, s",
            "what cleaning every segment with an invalid page took: segments erased, pages copied, seconds of the device with one read of every valid page",
        ),
        ("DAC", "another allocator: a page rises a region when it is overwritten and falls one when it is copied"),
        ("predictive", "margay's own allocator, which the paper does not have"),
    ],
    sections: &[
        Section {
            title: "Equations 2 and 3",
            asked: "How much does it cost to clean a device of a given utilization, invalidity and uniformity?",
            places: &["eq. 2", "eq. 3"],
            figures: &["fig3", "fig4"],
            difference: "Two printed digits of p say little about a count of a few segments, so p is taken from the measured erases, which are the number of mixed segments; what is left open is the last digit of i. The number of segments, 3712, was found from the lines with more than 100 erases, which therefore confirm nothing; the others do. The energies give the two constants that equation 3 needs, and nothing is left to test.",
        },
        Section {
            title: "Table 1: seven benchmarks, sequential against MODA",
            asked: "Does MODA raise uniformity, and does that make cleaning cheaper? The paper says yes: typically by 20 to 30 %, and most for a fax machine, 61 s instead of 23.",
            places: &["Table 1", "Table 1, stock Postmark"],
            figures: &[],
            difference: "With the sequential allocator nearly everything is within its bound. Under MODA the direction holds everywhere, but how many segments are mixed depends on how often the paper's test programs made a file system write a header, which is not stated: Camera has 15 mixed segments instead of 10, Fax 63 instead of 76, Andrew 74 instead of 62. No single run can have Camera's and Movie's printed copies together with the printed invalidity; these rows are held to what the printed erases and invalidity leave. The seconds are a model of the time (erases, copies, one read of every valid page), which is up to a second under the printed ones for Phone, Postmark and Andrew with the printed counts too. Postmark as its author ships it, with nothing fitted, meets the printed line if a deletion leaves the data to be counted as valid.",
        },
        Section {
            title: "Figs. 9 and 10: a device that fills",
            asked: "What happens to programs when the device gets full? From a utilization of 0.87 on, runs of Postmark take longer, because every write has to wait for cleaning; with a cleaning between the runs they do not.",
            places: &["Fig. 10"],
            figures: &["fig9", "fig10"],
            difference: "The run that starts at 0.864 is the first to take longer: 66 s instead of 12 with the sequential allocator, and 19 s with MODA. The text of Fig. 9 is not at hand; drawn is what the cleanings between the runs take.",
        },
        Section {
            title: "Fig. 11: other allocators and mixes of programs",
            asked: "Is there a better way? DAC tells pages apart by their own past. The paper finds MODA ahead of it. It prints figures for three programs at the same time: 34.82 s and p = 0.73 with the sequential allocator, 22.58 s and p = 0.84 with MODA.",
            places: &["Fig. 11, mix", "Fig. 11", "independent model"],
            figures: &["fig11", "mix", "settings"],
            difference: "On one program alone all of MODA's gain comes from keeping headers apart; DAC with headers apart is as good or better there. In the mixes the dynamic property decides. How the paper's programs took turns is not stated, and it matters more than the allocator: with four films and turns of sixteen operations the mix takes 41 and 22 s, and with turns of 256 operations uniformity is what the paper prints, 0.73 and 0.84, and cleaning takes 27 and 21 s. With ten films and single operations it is 84 and 36 s. MODA's settings (1 to 16 queues, lifetimes of 10 to 6400) make no difference beyond the error bars. margay's own allocator takes least everywhere.",
        },
    ],
};
