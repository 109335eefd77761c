"""The loaders of PyYAML for large files: libyaml takes a tenth of the time; some builds of PyYAML are without it."""

import yaml

LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# Leaves every scalar a text: `0x60` is sixty zeros to promtool, and 96 in YAML 1.1.
TEXTS: type[yaml.BaseLoader] = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
