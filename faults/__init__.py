"""Every fault of the lab, made on real engines, and what it was named: `make faults`."""
