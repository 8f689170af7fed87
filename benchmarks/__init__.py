"""Measurements that docs/benchmarks.md reports: engines interleaved, several rounds, medians of paired ratios."""
