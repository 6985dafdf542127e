"""Names that boards, rules and alerts share: a link in one is a place in another."""

from __future__ import annotations

from typing import Final

from pushscope.dashboards.promql import Recorded

# -- boards -------------------------------------------------------------------------------------------

OVERVIEW: Final = "pushscope-overview"
STAGES: Final = "pushscope-stages"
MODES: Final = "pushscope-modes"
PAIR: Final = "pushscope-pair"
"""Uids of the boards. They never change: links, alerts and bookmarks name them."""
TAG: Final = "pushscope"
"""What every board is tagged with; they link each other by it."""


def board_path(uid: str) -> str:
    """A board's place in any Grafana, below its root."""
    return f"/d/{uid}"


# -- runbooks -----------------------------------------------------------------------------------------

RUNBOOKS: Final = "https://github.com/pushscope/pushscope/blob/main/docs/runbooks.md"
"""Where links to runbooks lead, if nothing else is said: `--runbooks URL` of `pushscope dashboards` replaces it
everywhere by where a copy of docs/runbooks.md can be read."""


def runbook_url(section: str) -> str:
    """A section of the runbooks: a diagnosis code, or a heading in lower case with ``-`` for spaces."""
    return f"{RUNBOOKS}#{section}"


# -- Grafana's secrets --------------------------------------------------------------------------------

TOKEN_VARIABLE: Final = "GRAFANA_TOKEN"
USER_VARIABLE: Final = "GRAFANA_USER"
"""Where `pushscope dashboards push` finds them, if they are not to be seen in a list of processes."""

# -- alerts -------------------------------------------------------------------------------------------

ALERT_PREFIXES: Final = ("KVTransfer", "Pushscope")
"""Every alert's name begins with one of these; by them boards find alerts that fire."""

# -- recording rules ----------------------------------------------------------------------------------

_MODE: Final = ("job", "mode")
EXPOSED_P50: Final = Recorded("job_mode:kv_transfer_exposed_seconds:p50_rate5m", _MODE)
EXPOSED_P90: Final = Recorded("job_mode:kv_transfer_exposed_seconds:p90_rate5m", _MODE)
EXPOSED_P99: Final = Recorded("job_mode:kv_transfer_exposed_seconds:p99_rate5m", _MODE)
EXPOSED_USUAL: Final = Recorded("job_mode:kv_transfer_exposed_seconds:p99_usual1d", _MODE)
"""What the p99 usually is: its median over a day."""
STAGE_P99: Final = Recorded(
    "job_role_mode_stage:kv_transfer_stage_seconds:p99_rate5m", ("job", "role", "mode", "stage")
)
RANK_MEAN: Final = Recorded(
    "job_engine_role_stage_rank:kv_transfer_rank_stage_seconds:mean_rate5m",
    ("job", "engine", "role", "stage", "rank"),
)
RANK_SKEW: Final = Recorded(
    "job_engine_role_stage:kv_transfer_rank_stage_seconds:skew_rate5m", ("job", "engine", "role", "stage")
)
"""The slowest rank's mean over the mean of all ranks of the engine; 1 is even."""
