"""``python -m pyrometer_exporters.commands.gpu_check``."""

from __future__ import annotations

import sys

from pyrometer_exporters.commands.gpu_check.main import main

if __name__ == "__main__":
    sys.exit(main())
