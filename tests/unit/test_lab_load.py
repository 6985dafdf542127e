"""What a load sends, when, and how it is summed up."""

from __future__ import annotations

import asyncio
import itertools
import math

import httpx
import pytest

from pushscope.lab.load import LoadPlan, LoadRequest, run_load
from pushscope.lab.prompts import arrival_times, make_prompt, parse_token_count
from pushscope.lab.results import RequestResult, summarise, summary_text


def test_a_prompt_depends_on_seed_and_index_alone() -> None:
    assert make_prompt(1, 2, 50) == make_prompt(1, 2, 50)
    assert make_prompt(1, 2, 50) != make_prompt(1, 3, 50)
    assert make_prompt(1, 2, 50) != make_prompt(2, 2, 50)


def test_a_longer_prompt_begins_like_the_shorter_one() -> None:
    assert make_prompt(1, 2, 80)[:50] == make_prompt(1, 2, 50)


def test_prompts_hold_text_tokens_of_the_model_only() -> None:
    prompt = make_prompt(0, 0, 5000)
    assert min(prompt) == 4
    assert max(prompt) == 511


def test_a_plan_makes_the_same_requests_twice() -> None:
    plan = LoadPlan(num_requests=20, prompt_tokens=(10, 40), output_tokens=(2, 9), seed=5)
    requests = [plan.request(index) for index in range(20)]
    assert requests == [plan.request(index) for index in range(20)]
    assert {10, 40} >= {min(len(r.prompt) for r in requests) // 10 * 10}
    assert all(10 <= len(r.prompt) <= 40 and 2 <= r.output_tokens <= 9 for r in requests)
    assert len({len(r.prompt) for r in requests}) > 5


@pytest.mark.parametrize(("text", "count"), [("200", 200), ("100-400", (100, 400)), ("7-7", (7, 7))])
def test_token_counts_are_numbers_or_ranges(text: str, count: object) -> None:
    assert parse_token_count(text) == count


@pytest.mark.parametrize("text", ["", "0", "-5", "400-100", "many", "1-", "1-2-3"])
def test_another_token_count_is_an_error_that_quotes_it(text: str) -> None:
    with pytest.raises(ValueError, match="Expected a number of tokens"):
        parse_token_count(text)


def test_fixed_arrivals_are_evenly_spaced() -> None:
    assert list(itertools.islice(arrival_times(4.0, "fixed", 0), 4)) == [0.0, 0.25, 0.5, 0.75]


def test_poisson_arrivals_have_the_rate_on_average_and_the_spread_of_a_poisson_process() -> None:
    times = list(itertools.islice(arrival_times(5.0, "poisson", 1), 5001))
    gaps = [after - before for before, after in itertools.pairwise(times)]
    mean = sum(gaps) / len(gaps)
    deviation = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps))
    assert mean == pytest.approx(0.2, rel=0.05)
    assert deviation == pytest.approx(mean, rel=0.05)
    assert times == list(itertools.islice(arrival_times(5.0, "poisson", 1), 5001))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"num_requests": None}, "found neither"),
        ({"num_requests": 0}, "num_requests to be positive, found 0"),
        ({"rate": -1.0}, "rate to be positive, found -1.0"),
        ({"concurrency": 0}, "concurrency to be positive"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(changes: dict[str, float | None], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        LoadPlan(**({"num_requests": 1} | changes))  # type: ignore[arg-type]


def _result(index: int, *, error: str | None = None, ttft_s: float | None = None) -> RequestResult:
    return RequestResult(
        index=index,
        request_id=f"r{index}",
        num_prompt_tokens=10,
        start_s=float(index),
        latency_s=1.0,
        ttft_s=ttft_s,
        tpot_s=None if error else 0.002,
        num_output_tokens=0 if error else 8,
        error=error,
    )


def test_a_summary_counts_failed_requests_apart() -> None:
    results = [_result(0, ttft_s=0.1), _result(1, error="timed out", ttft_s=50.0), _result(2, ttft_s=0.3)]
    summary = summarise(results, seed=7)
    assert (summary.num_ok, summary.num_failed) == (2, 1)
    assert summary.errors == {"timed out": 1}
    assert summary.duration_s == 3.0
    assert summary.requests_per_s == pytest.approx(2 / 3)
    assert summary.output_tokens_per_s == pytest.approx(16 / 3)
    assert summary.ttft_s.p50 == 0.1
    assert summary.ttft_s.p99 == 0.3


def test_the_summary_as_text_says_what_is_not_known() -> None:
    text = summary_text(summarise([_result(0, error="HTTP 500: no")], seed=7))
    assert "0 of 1 requests ok, 1 failed" in text
    assert "TTFT  p50 -  p90 -  p99 -" in text
    assert text.endswith("1 x HTTP 500: no")


def test_the_summary_explains_a_transfer_more_than_requests() -> None:
    summary = summarise([_result(0)], seed=7, num_learning=1)
    assert summary.num_ok == 1
    assert "plus 1 request to learn P's engine id" in summary_text(summary)
    assert "learn" not in summary_text(summarise([_result(0)], seed=7))


class _Recorder:
    """A target that takes 50 ms per request and remembers how many it served at once."""

    def __init__(self) -> None:
        self.starts: list[float] = []
        self.now = self.most = 0

    async def send(self, client: httpx.AsyncClient, request: LoadRequest, load_start: float) -> RequestResult:
        self.starts.append(asyncio.get_running_loop().time())
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.05)
        self.now -= 1
        return _result(request.index)


async def test_a_closed_loop_keeps_its_concurrency() -> None:
    target = _Recorder()
    results = await run_load(LoadPlan(num_requests=10, concurrency=3), target)
    assert [result.index for result in results] == list(range(10))
    assert target.most == 3


async def test_an_open_loop_starts_requests_whether_or_not_others_are_done() -> None:
    target = _Recorder()
    await run_load(LoadPlan(num_requests=10, rate=200, arrivals="fixed"), target)
    assert target.most >= 5
    assert target.starts[-1] - target.starts[0] == pytest.approx(9 / 200, abs=0.04)


async def test_an_open_loop_keeps_to_its_limit() -> None:
    target = _Recorder()
    await run_load(LoadPlan(num_requests=8, rate=1000, concurrency=2), target)
    assert target.most == 2


@pytest.mark.parametrize("rate", [None, 50.0])
async def test_a_load_ends_with_its_duration(rate: float | None) -> None:
    target = _Recorder()
    results = await run_load(LoadPlan(duration_s=0.3, rate=rate, arrivals="fixed"), target)
    assert 3 <= len(results) <= 16
    assert target.starts[-1] - target.starts[0] < 0.32
    assert target.now == 0


async def test_results_are_told_as_they_come() -> None:
    told: list[int] = []
    await run_load(LoadPlan(num_requests=3), _Recorder(), on_result=lambda result: told.append(result.index))
    assert told == [0, 1, 2]
