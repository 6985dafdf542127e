"""Why a transfer is stuck, or an engine ill: pure functions from what was seen to a sentence with its evidence."""
