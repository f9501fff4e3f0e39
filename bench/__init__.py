"""Measurements, as ratios within one run; `bench/README.md` says what each number means."""
