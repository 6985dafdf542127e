"""Metrics: what happened, in numbers that Prometheus scrapes. The families, the fold that fills them, the page."""
