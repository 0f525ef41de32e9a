"""Python packages that only comparisons need: `tokenizers, = need_extras.modules("tokenizers")`.

The Python found first may not have them; build-py is the one that `scripts/setup all` puts them into. Then the script
starts again with that one. Where they are missing there, too, it ends with 77, which meson reports as skipped.
"""
import importlib
import os
import sys
from pathlib import Path

PYTHON = Path(__file__).resolve().parent.parent.parent / "build-py" / "bin" / "python3"


def modules(*names):
    try:
        return [importlib.import_module(name) for name in names]
    except ImportError as missing:
        if os.environ.get("PL_NEED_EXTRAS") is None and os.access(PYTHON, os.X_OK):
            os.environ["PL_NEED_EXTRAS"] = "tried"
            os.execv(PYTHON, [str(PYTHON), *sys.argv])
        print(f"skipped: {missing} (scripts/setup all installs it)")
        sys.exit(77)
