"""`python -m cohortd`: the command line."""

from __future__ import annotations

from cohortd.cli.main import main

if __name__ == "__main__":
    main()
