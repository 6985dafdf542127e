"""Faults of a P/D deployment, made on purpose in a running lab, each with the cause it must be named with."""
