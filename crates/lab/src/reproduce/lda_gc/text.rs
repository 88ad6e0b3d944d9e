//! The study for a reader who does not have the paper.

use crate::reproduce::{Paper, Section};

/// What the study is about, part by part.
pub static PAPER: Paper = Paper {
    name: "lda-gc",
    title: "LDA-GC: memory on flash, cleaned with knowledge of the page cache",
    source: "Locality and duplication-aware garbage collection for flash memory-based virtual memory systems, IEEE Transactions on Consumer Electronics 56(4), 2010",
    about: &[
        "A program whose memory is larger than RAM keeps part of it on flash: a cache holds some pages in RAM, others are read from flash when they are touched, and dirty ones are written back when they leave the cache. Below, a hybrid-mapped store collects writes in log blocks and now and then merges a log block with the data blocks that its pages belong to. A merge is a garbage collection (GC): it copies pages (migrations) and erases blocks.",
        "The paper's idea is that the merge may know the cache. A page that is in RAM anyway need not be copied on flash: it is dropped there and becomes dirty in the cache (duplication-aware, DA). That only pays if the page is not soon written back, so the paper looks at where in the cache's LRU list it is (locality-aware, LDA), and writes dirty pages that are about to leave along with the merge.",
        "Here its schemes run in margay's paging store. The paper's traces are not at hand; other programs' are used. What it says of one scheme against another is tested on them, its figures are not.",
    ],
    words: &[
        ("DU-GC", "duplication-unaware: copies every valid page; all figures are relative to it"),
        ("DA-GC", "drops pages that the cache holds"),
        (
            "LDA-GC1 to 5",
            "1: DA with least-cost choice of the log block; 2: drops only pages that are not about to leave the cache; 3: both; 4: as 2, and writes dirty pages that are about to leave; 5: 3 and 4",
        ),
        ("BA-GC", "margay's own: writes every cached dirty page of the merged blocks along"),
        ("I/O time", "reads, writes and erases of merges, and writes of pages that leave the cache dirty"),
        ("evictions", "pages that leave the cache dirty and are written"),
    ],
    sections: &[
        Section {
            title: "Figs. 1 to 3: one merge",
            asked: "The paper shows one merge of two blocks by each way of merging, with the pages copied and the blocks erased.",
            places: &["Figs. 1 to 3"],
            figures: &[],
            difference: "The example is complete in the paper and needs no trace: the counts are the same.",
        },
        Section {
            title: "Figs. 5 to 10 and Table IV: the schemes side by side",
            asked: "Which scheme takes least? Published: LDA-GC5, 37 % less I/O time than DU-GC, with evictions down by 14 to 18 % and GCs by about 45 %; duplication-awareness alone writes 27 % more pages back and gains nothing; every scheme costs less per GC than DU-GC.",
            places: &["Fig. 5", "Fig. 6", "Fig. 7", "Fig. 10", "Table IV", "sec. I"],
            figures: &["fig5", "fig6", "fig7", "fig8", "fig9", "fig10"],
            difference: "Writing dirty pages along with the merge (LDA-GC4 and 5) is what pays, as published, by 22 % in the mean and not by 37. Least-cost choice over all log blocks does not: LDA-GC3 is no better than LDA-GC2, because the cheapest block is a young one whose pages would have died. The GCs that are left cost more each. GCs fall by about 45 % only if merges of the sequential log block are not counted. Three readings of what the paper leaves open are shown; without a sequential log block little is left of the gain, and with written pages only and an LRU region of 90 % it is 25 %. Over a page-mapped log duplication-awareness pays only if there is hardly any room, 2 to 3 % beyond what is referenced; with as many blocks as the hybrid-mapped store it costs 1 to 10 %.",
        },
        Section {
            title: "Figs. 11 to 14: sizes of cache, log buffer and window",
            asked: "Does the gain depend on the sizes?",
            places: &[],
            figures: &["fig11", "fig12", "fig13"],
            difference: "The gain grows with the cache and hardly depends on the log buffer, as published. Of the log blocks among which the victim is chosen, 4 to 16 of 32 are best by little, and the window that adapts itself gets within 1 % of that wherever it starts; of 128 all are best.",
        },
    ],
};
