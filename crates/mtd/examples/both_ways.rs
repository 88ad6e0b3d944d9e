//! Programs the last erase block of an MTD and reads it by the calls of Linux 6.1 and by those before. What is on it is lost.

use margay_mtd::{Mtd, ReadError};
use std::io::Error;
use std::path::Path;

type Pages = Vec<(Vec<u8>, Vec<u8>)>;

fn read(mtd: &Mtd, first: u64, pages: u64) -> Result<(Pages, Vec<u8>), Error> {
    let (page, free) = (mtd.info().write_bytes as usize, mtd.info().free_oob_bytes as usize);
    let failed = |error: ReadError| match error {
        ReadError::Uncorrectable => Error::other("a page has more wrong bits than the ECC corrects"),
        ReadError::Io(error) => error,
    };
    let one = |number: u64| {
        let (mut data, mut oob) = (vec![0; page], vec![0; free]);
        mtd.read(first + number * page as u64, &mut data, &mut oob).map_err(failed)?;
        // The spare bytes alone, and only some of them.
        let mut part = vec![0; free / 2];
        mtd.read(first + number * page as u64, &mut [], &mut part).map_err(failed)?;
        if oob.starts_with(&part) { Ok((data, oob)) } else { Err(Error::other("spare bytes differ when read alone")) }
    };
    let singly = (0..pages).map(one).collect::<Result<Pages, Error>>()?;
    let (mut data, mut oob) = (vec![0; page * pages as usize], vec![0; free * pages as usize]);
    mtd.read(first, &mut data, &mut oob).map_err(failed)?;
    data.extend(oob);
    Ok((singly, data))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: both_ways /dev/mtdN")?;
    let mtd = Mtd::open(Path::new(&path), false)?;
    let info = *mtd.info();
    println!("{info:?}");
    let block = (0..info.size_bytes / u64::from(info.erase_bytes))
        .rev()
        .map(|number| number * u64::from(info.erase_bytes))
        .find(|at| matches!(mtd.is_bad(*at), Ok(false)))
        .ok_or("all erase blocks are bad")?;
    mtd.erase(block)?;
    let pages = 4;
    for number in 0..pages {
        let data: Vec<u8> = (0..info.write_bytes).map(|byte| (byte as u64 * 7 + number) as u8).collect();
        let oob: Vec<u8> = (0..info.free_oob_bytes).map(|byte| (byte as u64 * 3 + number) as u8).collect();
        mtd.write(block + number * u64::from(info.write_bytes), &data, &oob)?;
    }
    let by_request = read(&mtd, block, pages)?;
    mtd.read_as_before_linux_6_1();
    if read(&mtd, block, pages)? != by_request {
        return Err("the two ways of reading differ".into());
    }
    for (number, (data, oob)) in (0u64..).zip(&by_request.0) {
        let is_data = data.iter().enumerate().all(|(byte, value)| *value == (byte as u64 * 7 + number) as u8);
        let is_oob = oob.iter().enumerate().all(|(byte, value)| *value == (byte as u64 * 3 + number) as u8);
        if !is_data || !is_oob {
            return Err(format!("page {number} is not what was programmed").into());
        }
    }
    mtd.erase(block)?;
    println!("{pages} pages are the same by both");
    Ok(())
}
