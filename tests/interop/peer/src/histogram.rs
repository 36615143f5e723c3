//! Counts durations in buckets of about 3 percent, so that the counts of a loop of any length fit into memory.

/// Durations in nanoseconds.
#[derive(Debug)]
pub(crate) struct Histogram {
    buckets: Vec<u64>,
    longest: u64,
}

impl Histogram {
    pub(crate) fn new() -> Self {
        Self { buckets: vec![0; (u64::BITS as usize) << SUB_BITS], longest: 0 }
    }

    pub(crate) fn add(&mut self, nanos: u64) {
        self.buckets[bucket_of(nanos)] += 1;
        self.longest = self.longest.max(nanos);
    }

    pub(crate) fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    pub(crate) fn longest(&self) -> u64 {
        self.longest
    }

    /// An upper bound for at least this share of the values; 0 if there are no values.
    pub(crate) fn percentile(&self, percent: u64) -> u64 {
        let wanted = (self.count() * percent).div_ceil(100);
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if wanted > 0 && seen >= wanted {
                return self.longest.min(upper_bound(bucket));
            }
        }
        0
    }
}

fn bucket_of(nanos: u64) -> usize {
    let shift = (u64::BITS - nanos.leading_zeros()).saturating_sub(SUB_BITS + 1);
    ((shift as usize) << SUB_BITS) + (nanos >> shift) as usize
}

fn upper_bound(bucket: usize) -> u64 {
    let shift = (bucket >> SUB_BITS).saturating_sub(1);
    let start = ((bucket - (shift << SUB_BITS)) as u64) << shift;
    start + (1 << shift) - 1
}

/// Each power of two is cut into this number of buckets, given as a power of two.
const SUB_BITS: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_an_upper_bound_at_most_3_2_percent_off() {
        let mut histogram = Histogram::new();
        (1..=1_000).for_each(|micros| histogram.add(micros * 1_000));
        for percent in [50, 90, 99] {
            let exact = percent * 10_000;
            let told = histogram.percentile(percent);
            assert!(told >= exact && told <= exact + exact * 32 / 1_000, "{percent}: {told}");
        }
        assert_eq!((histogram.count(), histogram.longest()), (1_000, 1_000_000));
        assert_eq!(Histogram::new().percentile(99), 0);
    }
}
