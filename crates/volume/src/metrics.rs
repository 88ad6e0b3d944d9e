use crate::Files;
use margay_flash::Flash;
use margay_theory::{CleaningCost, cleaning_cost};
use std::fmt::Write;

/// The state of a file system, with the cleaning-cost model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metrics {
    /// Valid pages / data pages.
    pub utilization: f64,
    /// Invalid pages / data pages.
    pub invalidity: f64,
    /// Share of segments that do not hold valid and invalid pages together.
    pub uniformity: f64,
    /// What cleaning the whole device would take (MODA paper, eq. 2).
    pub to_clean: CleaningCost,
    /// Bytes written by users.
    pub bytes_written: u64,
    /// Bytes read by users.
    pub bytes_read: u64,
    /// Pages of data and of headers programmed, copies not counted.
    pub data_pages: u64,
    /// Header pages programmed.
    pub header_pages: u64,
    /// Pages copied by cleaning.
    pub copies: u64,
    /// Other pages programmed.
    pub metadata_pages: u64,
    /// Segments erased.
    pub erases: u64,
    /// Erases of the most worn segment over its life.
    pub max_erases: u32,
    /// Bytes programmed / bytes written by users; none before the first write.
    pub write_amplification: Option<f64>,
    /// Objects.
    pub objects: u32,
    /// Pages that are free to users, and pages in all.
    pub free_pages: u64,
    /// Pages that users can have.
    pub pages: u64,
    /// Bytes of memory of the objects.
    pub object_memory_bytes: u64,
    /// Bytes of memory of the log, which has a fixed size.
    pub log_memory_bytes: u64,
    /// Segments retired.
    pub retired_segments: u64,
}

impl Metrics {
    /// Those of a file system.
    pub fn of<F: Flash>(fs: &Files<F>) -> Self {
        let (state, segments, counters) = (fs.uniformity(), fs.log().segments(), fs.log().counters());
        let (files, room, memory) = (fs.counters(), fs.room(), fs.memory_bytes());
        let data_segments = segments.len() - fs.log().config().reserved_segments;
        let (u, i, p) = (state.utilization, state.invalidity, state.uniformity);
        let to_clean = cleaning_cost(u, i, p, data_segments.into(), segments.data_pages.into())
            .unwrap_or(CleaningCost { erases: 0.0, copies: 0.0 });
        let programmed = counters.programs() * u64::from(room.page_bytes);
        Self {
            utilization: u,
            invalidity: i,
            uniformity: p,
            to_clean,
            bytes_written: files.bytes_written,
            bytes_read: files.bytes_read,
            data_pages: files.data_pages,
            header_pages: files.header_pages,
            copies: counters.copies,
            metadata_pages: counters.metadata_pages,
            erases: counters.erases,
            max_erases: segments.max_erases,
            write_amplification: (files.bytes_written > 0).then(|| programmed as f64 / files.bytes_written as f64),
            objects: room.objects,
            free_pages: room.free_pages,
            pages: room.pages,
            object_memory_bytes: memory.0,
            log_memory_bytes: memory.1,
            retired_segments: fs.retired_segments() as u64,
        }
    }
}

/// The metrics in the text format of Prometheus.
pub fn prometheus(metrics: &Metrics) -> String {
    let mut text = String::new();
    let mut put = |name: &str, kind: &str, help: &str, value: f64| {
        let _ =
            writeln!(text, "# HELP margay_fs_{name} {help}\n# TYPE margay_fs_{name} {kind}\nmargay_fs_{name} {value}");
    };
    let m = metrics;
    put("utilization", "gauge", "Valid pages / data pages.", m.utilization);
    put("invalidity", "gauge", "Invalid pages / data pages.", m.invalidity);
    put("uniformity", "gauge", "Share of segments without valid and invalid pages together.", m.uniformity);
    put("clean_all_erases", "gauge", "Erases to clean the whole device (eq. 2).", m.to_clean.erases);
    put("clean_all_copies", "gauge", "Page copies to clean the whole device (eq. 2).", m.to_clean.copies);
    put("bytes_written_total", "counter", "Bytes written by users.", m.bytes_written as f64);
    put("bytes_read_total", "counter", "Bytes read by users.", m.bytes_read as f64);
    put("data_pages_total", "counter", "Pages of data programmed.", m.data_pages as f64);
    put("header_pages_total", "counter", "Pages of object headers programmed.", m.header_pages as f64);
    put("copied_pages_total", "counter", "Pages copied by cleaning.", m.copies as f64);
    put("erases_total", "counter", "Segments erased.", m.erases as f64);
    put("segment_erases_max", "gauge", "Erases of the most worn segment over its life.", m.max_erases.into());
    put("objects", "gauge", "Objects in use.", m.objects.into());
    put("free_pages", "gauge", "Pages free to users.", m.free_pages as f64);
    put("pages", "gauge", "Pages that users can have.", m.pages as f64);
    put("memory_bytes", "gauge", "Memory of objects and log.", (m.object_memory_bytes + m.log_memory_bytes) as f64);
    put("retired_segments", "gauge", "Segments retired.", m.retired_segments as f64);
    text
}
