"""Replace names of a site everywhere, by something of the same shape; nothing else is."""

from __future__ import annotations

import json
import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrometer_exporters.commands.doctor.redaction import OUR_LABELS, Redactor

UUID = "GPU-29c3789b-5349-4548-a4ba-cbb2b17e4800"
KEY = b"k" * 32
names = st.text(string.ascii_letters + string.digits + "-._", min_size=3, max_size=40)


def test_a_page_keeps_its_shape_and_loses_its_names() -> None:
    page = f'pyrometer_gpu_info{{gpu="3",uuid="{UUID}",serial="1652922000123",model="NVIDIA H100",node="gpu-042"}} 1\n'
    said = Redactor(key=KEY).text(page)
    for secret in (UUID, "1652922000123", "gpu-042"):
        assert secret not in said
    assert re.fullmatch(
        r'pyrometer_gpu_info\{gpu="3",uuid="GPU-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",'
        r'serial="\d{13}",model="NVIDIA H100",node="[a-z]{3}-\d{3}"\} 1\n',
        said,
    )


def test_a_name_learned_from_a_page_is_replaced_alike_in_logs_and_tapes() -> None:
    redactor = Redactor(key=KEY)
    redactor.learn_page(f'a{{uuid="{UUID}",run="llama-70b",serial="KQRSTUVWX"}} 1\n')
    log = redactor.text(f"run llama-70b on {UUID}; error of another")
    assert redactor.pseudonym("llama-70b") in log
    assert redactor.pseudonym(UUID) in log
    assert log.endswith("; error of another")
    answers = {"nvmlDeviceGetUUID(0)": [[0, UUID.encode().hex()]], "nvmlDeviceGetSerial(0)": [[0, b"KQRSTUVWX".hex()]]}
    tape = redactor.tape(json.dumps({"version": 1, "calls": answers}))
    assert redactor.pseudonym(UUID).encode().hex() in tape
    assert UUID.encode().hex() not in tape
    assert b"KQRSTUVWX".hex() not in tape


@pytest.mark.parametrize(
    "text",
    [
        "driver 590.48.01, library 13.590.48.01",
        "VBIOS 96.00.89.00.01, InfoROM G520.0200.00.05",
        "0000:18:00.0 is on the PCI bus",
        "listening on 127.0.0.1:9935 and 0.0.0.0:9935",
        "time=2026-11-23T09:42:48.752Z level=warn",
        'model="NVIDIA H100 80GB HBM3",pci_bus_id="0000:18:00.0",gpu="3",driver="590.48.01"',
    ],
)
def test_versions_times_and_models_stay(text: str) -> None:
    assert Redactor(key=KEY).text(text) == text


@pytest.mark.parametrize(
    "secret",
    [
        "10.12.0.7",
        "b8:ce:f6:12:34:56",
        "00:02:c9:03:00:12:34:57",
        UUID,
        "fe80::2a0:98ff:fe12:3456",
        "2001:db8:0:1:1:1:1:1",
    ],
)
def test_addresses_are_replaced_though_nobody_named_them(secret: str) -> None:
    said = Redactor(key=KEY).text(f"peer {secret}: no answer")
    assert secret not in said
    assert len(said) == len(f"peer {secret}: no answer")


def test_a_short_host_is_replaced_as_a_word_only() -> None:
    redactor = Redactor(key=KEY)
    redactor.learn_host("vm.example.org")
    assert redactor.text("Pyrometer on vm: vmlinux") != "Pyrometer on vm: vmlinux"
    assert redactor.text("Pyrometer on vm: vmlinux").endswith(": vmlinux")


def test_two_reports_of_one_site_share_no_replacement() -> None:
    assert Redactor().pseudonym("cluster-of-acme") != Redactor().pseudonym("cluster-of-acme")


@given(names)
def test_a_replacement_has_the_length_and_the_kinds_of_characters(value: str) -> None:
    new = Redactor(key=KEY).pseudonym(value)
    assert len(new) == len(value)
    assert [char.isdigit() for char in new] == [char.isdigit() for char in value] or not value.isdigit()
    assert [char.isalnum() for char in new] == [char.isalnum() for char in value]


def test_only_our_own_words_leave_whatever_label_path_or_sentence_they_stand_in() -> None:
    redactor = Redactor(key=KEY)
    page = (
        'pyrometer_train_run_link_info{run="train",name="wandb",url="https://wandb.acme.example/zeus/runs/abc123"} 1\n'
        'pyrometer_train_step_part_seconds_total{run="train",part="acme_s3_fetch"} 1.5\n'
        'pyrometer_train_run_info{run="train",model="acme-zeus-70b",dtype="bf16"} 1\n'
        'pyrometer_gpu_clock_event_seconds_total{gpu="0",reason="power_cap"} 12.25\n'
        'acme_filer_latency{vol="zeus",label_of_a_plugin="Zürich"} 3\n'
    )
    redactor.learn_page(page)
    said = redactor.text(
        f'{page}time=2026-11-23T09:42:48.752Z level=warn source=pyrometer_exporters.node.nccl msg="not available: '
        "collector nccl /home/"
        "carol/zeus/insp: enoent: [Errno 2] No such file or directory: '/mnt/acme-7/carol'\" "
        "mail bob@acme.example, login bob password=hunter2 refused; unit acme-vaultd.service\n"
    )
    for secret in ("acme", "zeus", "abc123", "carol", "bob", "hunter2", "vaultd", "filer", "rich"):
        assert secret not in said.lower(), secret
    kept = (
        'pyrometer_gpu_clock_event_seconds_total{gpu="0",reason="power_cap"} 12.25',
        'dtype="bf16"', "pyrometer_train_run_link_info{", "time=2026-11-23T09:42:48.752Z level=warn",
        "not available: collector nccl /home/", "enoent: [Errno 2] No such file or directory",
    )  # fmt: skip
    for text in kept:
        assert text in said, text


def test_texts_in_the_drivers_answers_are_filtered_and_numbers_stay() -> None:
    process, number = b"/export/carol/zeus.py", (2**40 + 12345).to_bytes(8, "little")
    answers = {
        "nvmlSystemGetProcessName(4711)": [[0, process.hex()], [0, b"zeus".hex()]],
        "nvmlDeviceGetName(a#0)": [[0, b"NVIDIA H100 80GB HBM3".hex()]],
        "nvmlDeviceGetMemoryInfo(a#0)": [[0, number.hex(), ["pointer", "a#0"]]],
    }
    redactor = Redactor(key=KEY)
    redactor.allow(["NVIDIA H100 80GB HBM3"])
    said = json.loads(redactor.tape(json.dumps({"version": 1, "calls": answers})))["calls"]
    assert said["nvmlDeviceGetName(a#0)"] == answers["nvmlDeviceGetName(a#0)"]
    assert said["nvmlDeviceGetMemoryInfo(a#0)"] == answers["nvmlDeviceGetMemoryInfo(a#0)"]
    names = [bytes.fromhex(answer[1]).decode() for answer in said["nvmlSystemGetProcessName(4711)"]]
    assert [len(name) for name in names] == [len(process), 4]
    assert not any("zeus" in name or "carol" in name for name in names)


NO_LABELS = ["Hostname", "host", "job_id", "model_of_a_plugin", "node", "run", "serial", "url", "user", "uuid"]


@given(st.dictionaries(st.sampled_from(NO_LABELS), names, min_size=1, max_size=4), st.floats(0, 1e12))
def test_a_label_that_is_not_listed_is_replaced_and_every_value_stays(labels: dict[str, str], value: float) -> None:
    redactor = Redactor(key=KEY)
    inside = ",".join(f'{name}="{text}"' for name, text in labels.items())
    line = f"metric{{{inside}}} {value!r}"
    said = redactor.text(line)
    assert said.endswith(f"}} {value!r}")
    found = dict(re.findall(r'(\w+)="([^"]*)"', said))
    assert OUR_LABELS.isdisjoint(NO_LABELS)
    assert [*found.values()] == [redactor.pseudonym(text) for text in labels.values()]
