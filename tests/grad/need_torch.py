"""PyTorch for the comparisons of this folder: `from need_torch import torch`.

The Python found first may not be the one PyTorch is installed for (Debian's python3-torch belongs to /usr/bin/python3);
then the script starts again with that one. Without any PyTorch it ends with 77, which meson reports as skipped.
"""
import os
import sys

SYSTEM = "/usr/bin/python3"
try:
    import torch
except ImportError:
    if os.environ.get("PL_NEED_TORCH") is None and os.access(SYSTEM, os.X_OK):
        os.environ["PL_NEED_TORCH"] = "tried"
        os.execv(SYSTEM, [SYSTEM, *sys.argv])
    print("skipped: PyTorch is not installed (Debian: apt-get install python3-torch)")
    sys.exit(77)
