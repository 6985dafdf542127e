"""Spans of transfers: what the agent exports, and what ``pushscope trace`` writes."""
