"""The lab's command line: measure, report again from raw rows, or train to a loss."""

from __future__ import annotations

import sys

from benchmarks.netlab.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
