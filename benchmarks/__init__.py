"""Programs that measure. Every table in docs/benchmarks.md is printed by one of them."""
