"""Check everything that Pyrometer says about a GPU on the one that is here, unattended, in at most nine minutes.

    python benchmarks/on_gpu.py [--out FOLDER] [--stand-in] [--only abc]

Runs from a checkout: needs Python 3.10 or newer with torch, nvidia-ml-py, prometheus-client, PyYAML and bcrypt, no
network, and changes no setting of the GPU. Prints expected, measured and verdict of each check, and leaves all raw data
in one folder. On a machine without a GPU each experiment says so; ``--stand-in`` runs them on the project's simulated
driver and on torch's CPU build. Ends with 1 if a check failed, with 2 if nothing could be measured.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PARTS = [str(ROOT / part) for part in ("client", "kit", "exporters", "simulator", "alerting", "benchmarks")]

if __name__ == "__main__":
    sys.path[:0] = PARTS
    # Programs that are started from here: the exporter, the doctor, the loads.
    os.environ["PYTHONPATH"] = os.pathsep.join([*PARTS, *filter(None, [os.environ.get("PYTHONPATH")])])
    from gpu_check.main import main

    sys.exit(main())
