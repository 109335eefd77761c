"""No secret is in the tree, and the bills of materials name every package of an image."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tools import secret_scan

ROOT = Path(__file__).resolve().parents[2]


def test_the_tree_has_no_secret() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout: no list of files")
    assert secret_scan.main() == 0


# In pieces, so that this file has none.
@pytest.mark.parametrize(("kind", "secret"), [
    ("Slack token", "xoxb-" + "123456789012-" + "aBcDeFgHiJkLmNoPqRsT"),
    ("GitHub token", "ghp_" + "a1B2" * 9),
    ("AWS key", "AKIA" + "Z7" * 8),
    ("private key", "-----BEGIN " + "RSA PRIVATE KEY-----\n" + "QUJD" * 12),
    ("password in a URL", "https://me:" + "Qx7vR2mK@prometheus.internal"),
    ("JSON web token", "eyJ" + "hbGciOiJIUzI1" + ".eyJ" + "zdWIiOiIxMjM0" + "." + "SflKxwRJSMeKKF2QT4fw"),
])  # fmt: skip
def test_a_secret_is_found_with_its_line(kind: str, secret: str) -> None:
    assert list(secret_scan.findings(f"one\ntwo {secret}\n")) == [(2, kind)]


@pytest.mark.parametrize("harmless", [
    "xoxb-fake-token-of-the-demo", "https://user@host/", "https://me:secret-password@host", "sha256:" + "0a" * 32,
])  # fmt: skip
def test_what_is_no_secret_is_none(harmless: str) -> None:
    assert list(secret_scan.findings(harmless)) == []


@pytest.mark.parametrize(("image", "parts", "ours"), [
    ("exporters", "kit,client,exporters", {"pyrometer", "pyrometer-kit", "pyrometer-exporters"}),
    ("alerting", "kit,alerting[postgresql]", {"pyrometer-kit", "pyrometer-alerting"}),
])  # fmt: skip
def test_a_bill_names_every_package_with_its_hashes(image: str, parts: str, ours: set[str], tmp_path: Path) -> None:
    programs = Path(sys.executable).parent
    if not (programs / "cyclonedx-py").exists():
        pytest.skip("no cyclonedx-py: make sbom installs it")
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    subprocess.run([ROOT / "tools/sbom.sh", image, parts, tmp_path / "bill"], env=environment, check=True)
    bill = json.loads((tmp_path / "bill").read_text(encoding="utf-8"))
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    assert bill["metadata"]["component"]["name"] == f"pyrometer-{image}"
    lines = (ROOT / f"compose/requirements/{image}.txt").read_text(encoding="utf-8").splitlines()
    packages = [each for each in bill["components"] if each["name"] not in ours]
    assert len(packages) == sum(1 for line in lines if line and line[0] not in "# ")
    assert all(each["externalReferences"][0]["hashes"] for each in packages)
    assert ours <= {each["name"] for each in bill["components"]}
