"""Lets `python -m gradwire` be the command `gradwire`."""

import sys

from gradwire.cli.main import main

sys.exit(main())
