"""Every failure mode, as the tests reproduce it on each level, and what it was named: `make table`."""
