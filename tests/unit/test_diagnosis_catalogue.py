"""Every row of the failure modes has a code, or a reason why it can't; every code a remedy."""

from diagnoses.rows import ROWS

from pushscope.telemetry.diagnosis.catalogue import CATALOGUE, NOT_FROM_EVENTS


def test_no_row_is_left_out_and_none_is_in_both():
    coded = {row for entry in CATALOGUE.values() for row in entry.rows}
    assert coded | set(NOT_FROM_EVENTS) == ROWS.keys()
    assert not coded & set(NOT_FROM_EVENTS)


def test_codes_are_words_and_say_what_to_do():
    for code, entry in CATALOGUE.items():
        assert code == entry.code
        assert code.replace("_", "").isalpha()
        assert code.islower()
        assert entry.title
        assert entry.remedy.endswith(".")
    assert all(NOT_FROM_EVENTS.values())
