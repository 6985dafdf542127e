"""A transfer's page: how it stands, what is wrong and what to do, what happened, and its ids."""

from __future__ import annotations

import msgspec
import pytest
from rich.cells import cell_len

from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.transfer import Stage, Transfer
from pushscope.telemetry.why.account import Attempt
from pushscope.telemetry.why.expected import Missing
from pushscope.telemetry.why.meanwhile import Happening
from pushscope.tui.tones import PLAIN
from pushscope.tui.transfer_page import Told, ids_of, transfer_page

from . import samples
from .samples import D1, MS, NOW, P1, S


def drawn(transfer: Transfer, snapshot: Snapshot, attempt: Attempt | None = None, width: int = 120) -> str:
    told = Told(transfer, snapshot, attempt, "")
    return "\n".join(line.plain for line in transfer_page(told, width, PLAIN))


def attempt_of(transfer: Transfer) -> Attempt:
    begin = NOW - 100 * S
    return Attempt(
        number=1,
        transfer=transfer,
        p_engine=P1,
        d_engine=D1,
        began_ns=begin,
        last_ns=NOW,
        happened=(
            Happening(
                t_ns=begin,
                side="D",
                kind="RegistrationStaged",
                engine=D1,
                rank=None,
                what="the registration was staged",
            ),
            Happening(
                t_ns=begin + 12 * MS,
                side="P",
                kind="RegistrationDrained",
                engine=P1,
                rank=(0, 0),
                what="the registration arrived",
            ),
        ),
        missing=(Missing(side="P", rank=(0, 0), what="the blocks were staged", since_ns=begin),),
    )


def test_all_ids_are_there_whole_with_the_key_that_copies_each() -> None:
    transfer = samples.delivered(1)
    attempt = msgspec.structs.replace(attempt_of(transfer), trace_id="0af7651916cd43dd8448eb211c80319c")
    page = drawn(transfer, samples.busy(), attempt)
    ids = ids_of(Told(transfer, samples.busy(), attempt))
    assert "".join(each.key for each in ids) == "yDPuvt"
    for each in ids:
        assert f"{each.key}  {each.what:<12} {each.value}" in page


def test_an_id_that_is_not_known_has_no_line() -> None:
    assert {each.key for each in ids_of(Told(samples.waiting(50, "P"), samples.busy()))} == {"y", "P", "v"}


def test_what_is_wrong_has_its_evidence_and_its_remedy() -> None:
    snapshot = samples.stuck()
    (transfer,) = (t for t in snapshot.waiting if t.base_id == samples.request(51))
    page = drawn(transfer, snapshot)
    assert "registration_without_prefill" in page
    assert "D1 has waited 1m35s for a prefill" in page
    assert page.index("registration sent to P's tp0") < page.index("the prefill leg ended without blocks")
    assert "-> Abort the decode leg" in page


def test_an_engines_illness_is_on_the_page_of_whom_it_costs() -> None:
    snapshot = samples.stuck()
    (transfer,) = (t for t in snapshot.waiting if t.base_id == samples.request(52))
    page = drawn(transfer, snapshot)
    assert "handshake_listener_dead" in page
    assert "Likely, not certain." in page


def test_its_events_and_what_did_not_come() -> None:
    transfer = samples.waiting(51, "D")
    page = drawn(transfer, samples.busy(), attempt_of(transfer))
    assert page.index("the registration was staged") < page.index("the registration arrived")
    assert "+12.0 ms" in page
    assert "Expected, and did not come" in page
    assert "P1 tp0" in page


def test_without_events_it_says_that_they_are_not_held() -> None:
    assert "its events are not held any more" in drawn(samples.delivered(1), samples.busy())


def test_an_open_lease_is_told_and_one_that_is_over_too() -> None:
    transfer = samples.in_flight(1, Stage.WIRE)
    for until_ns, says in (
        (NOW + 9 * S, "P's lease ends in 9.00 s"),
        (NOW - 9 * S, "P's lease ended 9.00 s ago"),
    ):
        leased = msgspec.structs.replace(transfer, lease_until_ns=until_ns)
        assert says in drawn(leased, samples.busy())


@pytest.mark.parametrize("base", samples.HOSTILE_IDS)
def test_a_hostile_id_is_only_text(base: str) -> None:
    snapshot = samples.hostile()
    page = drawn(samples.in_flight(1, Stage.WIRE, base=base), snapshot)
    assert not any((ord(char) < 32 and char != "\n") or 0x7F <= ord(char) < 0xA0 for char in page)


@pytest.mark.parametrize("width", [58, 78, 118, 198])
def test_all_but_ids_keeps_to_the_width(width: int) -> None:
    snapshot = samples.stuck()
    for transfer in (*snapshot.in_flight, *snapshot.waiting):
        lines = drawn(transfer, snapshot, attempt_of(transfer), width).split("\n")
        # The line of figures is wrapped by the widget that it is drawn in.
        ids = lines.index("Ids, and the key that copies each")
        too_wide = [line for line in lines[:ids] if cell_len(line) > width and " · " not in line]
        assert not too_wide
