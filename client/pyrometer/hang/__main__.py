"""``python -m pyrometer.hang``."""

import sys

from pyrometer.hang.main import main

sys.exit(main())
