"""Python imports this when it starts, if `gradwire measure` started it: begins to watch, then lets the real one run.

A Python imports one `sitecustomize`, the first in its path; the one that this hides is imported from here.
"""

import os
import sys


def _go_on() -> None:
    """Import the sitecustomize that there would have been."""
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib is slow to import
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != here]  # noqa: PTH100
    mine = sys.modules.pop("sitecustomize")
    try:
        import sitecustomize  # noqa: F401
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        # The import system looks for the name that it is importing.
        sys.modules.setdefault("sitecustomize", mine)


def _watch() -> None:
    try:
        from gradwire.integrations.attach.imports import watch_imports
    except (ImportError, SyntaxError) as error:
        sys.stderr.write(f"gradwire measure: {sys.executable} runs unmeasured: it cannot import gradwire ({error})\n")
    else:
        watch_imports()


if os.environ.get("GRADWIRE_MEASURE"):
    _watch()
_go_on()
