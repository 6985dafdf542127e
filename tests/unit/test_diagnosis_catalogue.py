"""Every row of the failure modes has a code, or a reason why it can't; every code a remedy."""

from pushscope.telemetry.diagnosis.catalogue import CATALOGUE, NOT_FROM_EVENTS

LAST = {"A": 17, "B": 10, "C": 15, "D": 5, "E": 9, "F": 6}
ROWS = {f"{group}{n}" for group, last in LAST.items() for n in range(1, last + 1)} | {"B13"}
NO_SUCH_ROW = {"C9"}


def test_no_row_is_left_out_and_none_is_in_both():
    coded = {row for entry in CATALOGUE.values() for row in entry.rows}
    assert coded | set(NOT_FROM_EVENTS) == ROWS - NO_SUCH_ROW
    assert not coded & set(NOT_FROM_EVENTS)


def test_codes_are_words_and_say_what_to_do():
    for code, entry in CATALOGUE.items():
        assert code == entry.code
        assert code.replace("_", "").isalpha()
        assert code.islower()
        assert entry.title
        assert entry.remedy.endswith(".")
    assert all(NOT_FROM_EVENTS.values())
