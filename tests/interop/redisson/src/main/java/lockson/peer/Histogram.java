package lockson.peer;

import java.util.Arrays;

/** Counts durations in buckets of about 3 percent, so that the counts of a loop of any length fit into memory. */
final class Histogram {
    /** Each power of two is cut into this number of buckets, given as a power of two. */
    private static final int SUB_BITS = 5;

    private final long[] buckets = new long[(Long.SIZE - SUB_BITS) << SUB_BITS];
    private long longest;

    void add(long nanos) {
        long value = Math.max(0, nanos);
        buckets[bucketOf(value)]++;
        longest = Math.max(longest, value);
    }

    long count() {
        return Arrays.stream(buckets).sum();
    }

    long longest() {
        return longest;
    }

    /** An upper bound for at least this share of the values; 0 if there are no values. */
    long percentile(int percent) {
        long wanted = (count() * percent + 99) / 100;
        long seen = 0;
        for (int bucket = 0; wanted > 0 && bucket < buckets.length; bucket++) {
            seen += buckets[bucket];
            if (seen >= wanted) {
                return Math.min(longest, upperBound(bucket));
            }
        }
        return 0;
    }

    private static int bucketOf(long value) {
        int shift = Math.max(0, Long.SIZE - Long.numberOfLeadingZeros(value) - SUB_BITS - 1);
        return (shift << SUB_BITS) + (int) (value >>> shift);
    }

    private static long upperBound(int bucket) {
        int shift = Math.max(0, (bucket >> SUB_BITS) - 1);
        long start = (long) (bucket - (shift << SUB_BITS)) << shift;
        return start + (1L << shift) - 1;
    }
}
