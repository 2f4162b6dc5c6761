"""Runs `python -m gradwire.train PLAN`, one process per rank."""

from __future__ import annotations

from gradwire.train.main import main

if __name__ == "__main__":
    main()
