"""What is true of cohorts: frozen values and pure functions. No I/O, no clock, no framework."""
