"""Run the check of a GPU from a checkout, where nothing is installed; record its results and write their page.

    python tools/gpu_check.py [--out FOLDER] [--stand-in] [--only abc]

Needs Python 3.10 or newer with torch, nvidia-ml-py, prometheus-client, PyYAML and bcrypt. On a machine without a GPU
each experiment says so; ``--stand-in`` runs them on the project's simulated driver and on torch's CPU build.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PARTS = [str(ROOT / part) for part in ("client", "kit", "exporters", "simulator", "alerting")]

if __name__ == "__main__":
    sys.path[:0] = PARTS
    # Programs that are started from here: the exporter, the doctor, the loads.
    os.environ["PYTHONPATH"] = os.pathsep.join([*PARTS, *filter(None, [os.environ.get("PYTHONPATH")])])
    import gpu_page  # beside this file

    sys.exit(gpu_page.main())
