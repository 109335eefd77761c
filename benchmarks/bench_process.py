"""Our ``process_*`` metrics against prometheus_client's ProcessCollector: import, memory, CPU per scrape, in one run.

Run: .venv/bin/python benchmarks/bench_process.py
"""

from __future__ import annotations

import subprocess
import sys

SCRAPES = 2000
# Each in an interpreter of its own, which has already imported the rest of an exporter.
MEASURE = """
import time
import pyrometer_exporters.framework.service
def resident_megabytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 1e6
memory, start = resident_megabytes(), time.process_time()
{collector}
list(collect())
took = time.process_time() - start
print(f"{{1e3 * took:.1f}} ms and {{resident_megabytes() - memory:.1f}} MB to import, ", end="")
start = time.process_time()
for _ in range({scrapes}):
    list(collect())
print(f"{{1e6 * (time.process_time() - start) / {scrapes}:.0f}} us of CPU per scrape")
"""
COLLECTORS = {
    "ours": "from pyrometer_exporters.framework.process import Process\ncollect = Process().samples",
    "prometheus_client": (
        "from prometheus_client import CollectorRegistry\n"
        "from prometheus_client.process_collector import ProcessCollector\n"
        "collect = ProcessCollector(registry=CollectorRegistry(auto_describe=False)).collect"
    ),
}


def main() -> None:
    for name, collector in COLLECTORS.items():
        code = MEASURE.format(collector=collector, scrapes=SCRAPES)
        print(f"{name:18}", subprocess.check_output([sys.executable, "-c", code], text=True), end="")


if __name__ == "__main__":
    main()
