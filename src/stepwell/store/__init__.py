"""One rank's rows across tiers."""
