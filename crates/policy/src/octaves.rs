//! Spans on a scale of half octaves, for tables of lifetimes.

/// Number of half octaves that a `u32` can have.
pub const COUNT: usize = 64;

/// The half octave of a span in host page writes: two for each power of two, the upper one from 1.5 times the power on.
#[inline]
pub const fn of(span: u32) -> usize {
    let octave = 31 - (span | 1).leading_zeros();
    let upper = ((span as u64) << 1 >> octave) as usize & 1;
    2 * octave as usize + upper
}

/// The first span of a half octave, in host page writes.
pub fn start(number: usize) -> f64 {
    let octave = (1u64 << (number / 2)) as f64;
    if number.is_multiple_of(2) { octave } else { 1.5 * octave }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_lies_between_the_start_of_its_half_octave_and_that_of_the_next() {
        for span in (1..5000).chain([u32::MAX - 1, u32::MAX, 3 << 30, (3 << 30) - 1]) {
            let number = of(span);
            assert!((start(number)..start(number + 1)).contains(&f64::from(span)), "{span} is in {number}");
        }
        assert_eq!((of(0), of(1), of(u32::MAX)), (0, 0, COUNT - 1));
    }
}
