"""The moving parts: admit, wait, judge, sweep, start and stop."""
