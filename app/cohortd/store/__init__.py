"""The database: tables, the clock, the scribe, and a module for every fact that is established in it."""
