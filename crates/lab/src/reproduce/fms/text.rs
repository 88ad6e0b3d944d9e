//! The study for a reader who does not have the papers.

use crate::reproduce::{Paper, Section};

/// What the study is about, part by part.
pub static PAPER: Paper = Paper {
    name: "fms",
    title: "The Flash Memory Server: which segment to clean, and where its data goes",
    source: "M.-L. Chiang and R.-C. Chang, Cleaning policies in mobile computers using flash memory, Journal of Systems and Software 48 (1999) (J); its technical report (T); Chiang, Lee and Chang, an earlier report of the same server (R)",
    about: &[
        "Flash memory cannot be overwritten: new versions of a page are appended to segments that were erased before, and the old versions stay behind as invalid pages. When few erased segments are left, the server cleans: it chooses a segment, copies its valid pages elsewhere and erases it. The copies are what writing costs beside the writes themselves, and every segment bears only some 100,000 erases.",
        "The papers ask two questions. Which segment should be cleaned (selection): the one with the fewest valid pages (Greedy), the one with the best ratio of gain and cost (Cost-benefit), or one whose erase count is weighed too (CAT)? And where should its valid pages go (placement): all to one place (M1), or hot and cold pages to segments of their own (M4 by segment, M6 by page)? The server ran on a 486 and on a Pentium with a 24 MB flash card, and was simulated.",
        "Here the same policies run in margay's engine on a model of that card.",
    ],
    words: &[
        ("erases", "segments erased in the whole run"),
        ("copies", "valid pages that cleaning moved"),
        ("D", "uneven wearing: the standard deviation of the erase counts of all 192 segments"),
        ("locality 90/10", "90 % of the writes go to 10 % of the data, which are scattered"),
        ("M1", "one stream for all data"),
        ("M4", "data of hot and of cold segments apart"),
        ("M5", "pages apart by the number of their updates"),
        ("M6", "pages apart by updates and age"),
        ("read-only apart", "data that is never written has segments of its own"),
    ],
    sections: &[
        Section {
            title: "Tables 4 and 6: three policies on three workloads",
            asked: "49,152 pages of 4 KB are written over 20.5 MB of data, in sequence, at random, and with locality. The papers found that all policies are equal on sequential writes, that Greedy is best at random, and that with locality Greedy cleans more than twice as much as CAT with M6.",
            places: &["J Tables 4, 6", "other seeds"],
            figures: &[],
            difference: "Everything is held to the Pentium's column, the only one that has every measure and whose throughput is modelled; the 486 and the simulation differ from it by up to 4 % in CAT's erases at 90/10 and 11 % in D, by timing alone. What is called fitted agrees because constants were chosen so that it does: the papers show the function of the age as an image, and the times of an erase, a write and a copy follow from these nine throughputs. Greedy's figures and the sequential ones have no such constant, although choices that the papers leave open (how many segments stay free, which of equal segments is taken) were settled by them. The same runs with seeds that nothing was chosen with agree with an independent model.",
        },
        Section {
            title: "Section 5: locality 95/5",
            asked: "The text says how much less CAT with M6 cleans than the others when 95 % of the writes go to 5 % of the data.",
            places: &["J sec. 5, 95/5"],
            figures: &[],
            difference: "No constant was fitted to this workload. All six figures are met; copies against Cost-benefit are the furthest off, 2.2 points under, and spread by 1.1 points from seed to seed.",
        },
        Section {
            title: "Figs. 12 and 13: throughput over locality and over utilization",
            asked: "Does the order of the policies hold at other localities, and when the card is fuller or emptier?",
            places: &[],
            figures: &["fig12", "fig13"],
            difference: "The printed figures are images, so that only the points that Tables 4 and 6 share with them are drawn. As published, Greedy's throughput falls with locality and that of the others rises; CAT passes Cost-benefit between 70/30 and 80/20. From 60 % of utilization on CAT is fastest; at 50 % its search for hot pages costs more than it saves.",
        },
        Section {
            title: "Fig. 18: every selection with every placement",
            asked: "What comes from the selection, and what from the placement? The text gives the range of what M6 saves above a locality of 60/40.",
            places: &["T Fig. 18"],
            figures: &["fig18"],
            difference: "At 70/30 all six figures are met within a point. At 95/5 M6 saves less than published with Cost-benefit and CAT, most against M4 (22 and 33 % instead of 33 and 42 %): M4 does better here than there at high locality. Selection hardly matters without separation of hot and cold, and much with it.",
        },
        Section {
            title: "Figs. 14 to 17: a real trace",
            asked: "Do the results hold with the writes of a real machine, HP's hplajw? With data that is never written apart from the rest, erases fall by 60 %; M6 needs 6 % fewer erases than M4.",
            places: &["T Fig. 14", "T Fig. 15"],
            figures: &["fig14", "fig15", "fig16", "fig17"],
            difference: "This is one week of that machine with both its disks, folded onto the flash; the papers used more weeks of the root disk and do not say how addresses were mapped, so that none of their figures is comparable. Read-only data apart saves less, about 30 % of the erases, and M6 against M4 is the other way round: the week writes 16 MB of distinct data, a small hot set that whole segments separate well. One disk alone, numbering pages by their first write, six passes and Greedy in place of CAT did not change that.",
        },
    ],
};
