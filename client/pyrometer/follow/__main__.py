"""``python -m pyrometer.follow``, the same as ``pyrometer-follow``."""

import sys

from pyrometer.follow.main import main

sys.exit(main())
