use crate::args::GenerateArgs;
use crate::failure::Failure;
use margay_trace::{Format, IoKind, Request, TraceWriter};
use margay_workload::{OpKind, Workload, WorkloadSpec};

pub fn run(args: &GenerateArgs) -> Result<(), Failure> {
    let spec = WorkloadSpec::load(&args.workload)?;
    if spec.expected_writes().is_none() {
        return Err(Failure::Usage(format!("workload '{spec}' has no end: add writes=N")));
    }
    let format: Format = args.format.parse()?;
    let page_bytes = u64::from(args.page_bytes);
    let mut workload = Workload::new(&spec, args.pages, args.seed)?;
    let mut writer = TraceWriter::create_with(&args.to, format, args.force.existing())?;
    let (mut batch, mut requests) = (Vec::new(), 0u64);
    while workload.next_batch(&mut batch, 4096) > 0 {
        for op in &batch {
            let kind = match op.kind {
                OpKind::Write => IoKind::Write,
                OpKind::Trim => IoKind::Trim,
                OpKind::Read => IoKind::Read,
            };
            let offset_bytes = u64::from(op.lpn) * page_bytes;
            let request =
                Request { time_us: op.time_us, kind, device: 0, offset_bytes, len_bytes: page_bytes, stream: None };
            writer.write(&request)?;
        }
        requests += batch.len() as u64;
        batch.clear();
    }
    writer.finish()?;
    say!("{}: {requests} requests of {page_bytes} bytes, {spec}, seed {}", args.to.display(), args.seed);
    Ok(())
}
