"""Building benchmarks: look-alike pairs, hard negatives, pools for people to judge, and what their answers make of them."""
