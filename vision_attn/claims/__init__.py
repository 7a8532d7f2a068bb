"""The claims that texts make about attention, measured: what `diagnose` runs."""
