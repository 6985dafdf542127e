"""Engines that are only simulated: what they record is what real ones would."""
