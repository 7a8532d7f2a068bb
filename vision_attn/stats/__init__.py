"""Pure functions on arrays and tidy frames: intervals, pairs, resamples, multipliers, laws."""
