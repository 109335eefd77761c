"""The loader of PyYAML for large files: libyaml takes a tenth of the time, and some builds of PyYAML are without it."""

import yaml

LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
