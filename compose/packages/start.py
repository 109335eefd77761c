"""Start a console script of the packages beside this file."""

import sys
from importlib import import_module, metadata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.dont_write_bytecode = True
del sys.argv[0]
(found,) = metadata.entry_points(group="console_scripts", name=sys.argv[0])
sys.exit(getattr(import_module(found.module), found.attr)())
