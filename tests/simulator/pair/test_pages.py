"""Blocks of a page, as a reader pastes and runs them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyrometer_simulator.pair.pages import Hosts, blocks, merged
from pyrometer_simulator.shipped import project_folder

PAGE = """\
Text.

```yaml title="a.yaml"
key: 1
```

1. In a list:

    ```sh title="run"
    program --url=http://host-a:9090 \\
        --data=/data/x --peer=host-b:9090
    ```

```yaml
nobody: pastes this
```
"""


@pytest.fixture
def page(tmp_path: Path) -> dict[str, str]:
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    return blocks(path)


def test_blocks_with_a_title_are_found_where_they_are_indented_too(page: dict[str, str]) -> None:
    assert set(page) == {"a.yaml", "run"}
    assert page["a.yaml"] == "key: 1\n"
    assert page["run"].startswith("program --url")


def test_a_command_gets_loopback_ports_and_folders(page: dict[str, str]) -> None:
    hosts = Hosts("host", "host-a", "host-b")
    a, b = hosts.port("host-a", 9090), hosts.port("host-b", 9090)
    assert a != b
    command = hosts.command(page["run"], {"/data/": Path("/tmp/here")})
    assert command == [
        "program", f"--url=http://127.0.0.1:{a}", "--data=/tmp/here/x", f"--peer=127.0.0.1:{b}",
    ]  # fmt: skip


def test_keys_of_a_page_are_put_into_a_configuration_that_keeps_its_others() -> None:
    below = {"global": {"scrape_interval": "5s", "external_labels": {"cluster": "x"}}, "jobs": [1]}
    above = {"global": {"external_labels": {"replica": "a"}}, "remote_write": [2]}
    assert merged(below, above) == {
        "global": {"scrape_interval": "5s", "external_labels": {"cluster": "x", "replica": "a"}},
        "jobs": [1],
        "remote_write": [2],
    }
    assert "remote_write" not in below


@pytest.mark.parametrize("name", ["thanos", "mimir"])
def test_both_pages_give_the_second_prometheus_a_cursor_of_its_own(name: str) -> None:
    found = blocks(project_folder() / f"docs/howto/{name}.md")
    assert "prom-b" in found["second"]
    assert "labeldrop" in found["prometheus.yaml"]
