"""The collector's series of a GPU's health: memory errors, remapped rows, links, repairs."""

from __future__ import annotations

from typing import Any

import pytest

ECC_TOTALS = (
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
    "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL",
    "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL",
)
HISTOGRAM = tuple(f"DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_{name}" for name in ("MAX", "HIGH", "PARTIAL", "LOW", "NONE"))
RETIRED = ("DCGM_FI_DEV_RETIRED_SBE", "DCGM_FI_DEV_RETIRED_DBE", "DCGM_FI_DEV_RETIRED_PENDING")
REMAPPED = (
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
    "DCGM_FI_DEV_ROW_REMAP_PENDING",
    "DCGM_FI_DEV_ROW_REMAP_FAILURE",
)


def _values(scrape: Any, names: tuple[str, ...], **labels: str) -> list[float | None]:
    return [scrape.value(name, **labels) for name in names]


def _node(make_node: Any, driver: str = "590.48.01", **extras: Any) -> Any:
    """Two GPUs: 0 is healthy, 1 is as ``extras`` say."""
    return make_node(count=2, driver=driver, setup=lambda gpus: gpus[1].set(**extras))


def _same_as_before(healthy: Any, scrape: Any, *but: str) -> None:
    """The sick GPU is up, its neighbour has all, and it lacks nothing but these families."""
    assert scrape.downs == {}
    assert scrape.names_of("0") == healthy
    assert healthy - scrape.names_of("1") == set(but)


@pytest.fixture
def healthy(make_node: Any) -> set[str]:
    """The families of a healthy GPU."""
    names: set[str] = make_node(count=1).scrape().names_of("0")
    return names


def test_a_healthy_gpu_counts_from_0(make_node: Any) -> None:
    scrape = make_node(count=1).scrape()
    assert _values(scrape, ECC_TOTALS) == [0, 0, 0, 0]
    assert _values(scrape, REMAPPED) == [0, 0, 0, 0]
    assert _values(scrape, HISTOGRAM) == [2560, 0, 0, 0, 0]
    assert _values(scrape, RETIRED) == [None, None, None]  # newer than page retirement
    assert set(scrape.values("pyrometer_gpu_ecc_errors_total").values()) == {0}
    assert set(scrape.values("pyrometer_gpu_pcie_errors_total").values()) == {0}
    assert scrape.value("pyrometer_gpu_recovery_action") == 0


def test_memory_errors_are_told_in_total_and_by_place(make_node: Any) -> None:
    errors = {"volatile/device_memory/uncorrected": 2, "aggregate/sram/corrected": 7, "aggregate/l2_cache/corrected": 1}
    scrape = _node(make_node, ecc_errors=errors).scrape()
    assert _values(scrape, ECC_TOTALS, gpu="1") == [0, 2, 8, 0]
    assert _values(scrape, ECC_TOTALS, gpu="0") == [0, 0, 0, 0]
    by_place = scrape.values("pyrometer_gpu_ecc_errors_total", gpu="1")
    assert {"/".join(labels[2:]): value for labels, value in by_place.items() if value} == errors
    assert len(by_place) == 11 * 2 + 4


def test_counters_of_which_the_driver_gives_the_wrong_type_are_read_right(make_node: Any) -> None:
    errors = {"volatile/device_memory/corrected": 50_000_000_000}
    scrape = _node(make_node, ecc="mistyped", ecc_errors=errors).scrape()
    assert scrape.value("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", gpu="1") == 50_000_000_000


@pytest.mark.parametrize("ecc", ["off", "unset"])
def test_with_ecc_off_there_are_no_counts_rather_than_what_the_driver_left_in_the_entries(
    make_node: Any, healthy: set[str], ecc: str
) -> None:
    scrape = _node(make_node, ecc=ecc).scrape()
    assert _values(scrape, ("DCGM_FI_DEV_ECC_CURRENT", "DCGM_FI_DEV_ECC_PENDING"), gpu="1") == [0, 0]
    gone = ("pyrometer_gpu_ecc_errors_total", "pyrometer_gpu_sram_ecc_threshold_exceeded")
    _same_as_before(healthy, scrape, *ECC_TOTALS, *gone)


def test_what_only_root_may_see_is_absent_for_others(make_node: Any, healthy: set[str]) -> None:
    assert _node(make_node, sram_exceeded=1).scrape().value("pyrometer_gpu_sram_ecc_threshold_exceeded", gpu="1") == 1
    scrape = _node(make_node, root=False).scrape()
    _same_as_before(healthy, scrape, "pyrometer_gpu_sram_ecc_threshold_exceeded")


def test_retired_pages_of_a_gpu_older_than_ampere(make_node: Any) -> None:
    scrape = _node(make_node, retired={"sbe": 3, "dbe": 1, "pending": 1}).scrape()
    assert _values(scrape, RETIRED, gpu="1") == [3, 1, 1]
    assert _values(scrape, REMAPPED, gpu="1") == [None] * 4
    assert _values(scrape, REMAPPED, gpu="0") == [0] * 4


def test_remapped_rows_and_spare_banks(make_node: Any) -> None:
    rows = {"corrected": 4, "uncorrected": 1, "pending": 1, "failure": 1}
    scrape = _node(make_node, remapped=rows, spare_banks=[2550, 5, 3, 1, 1]).scrape()
    assert _values(scrape, REMAPPED, gpu="1") == [4, 1, 1, 1]
    assert _values(scrape, HISTOGRAM, gpu="1") == [2550, 5, 3, 1, 1]


def test_remappings_that_wait_and_whole_banks_on_the_drivers_that_tell(make_node: Any) -> None:
    rows = {"inactive_uncorrected": 2, "banks": 1, "banks_pending": 1}
    scrape = _node(make_node, "615.71.05", remapped=rows).scrape()
    assert scrape.value("pyrometer_gpu_inactive_row_remappings", gpu="1", error="uncorrected") == 2
    assert scrape.value("pyrometer_gpu_bank_remappings", gpu="1", state="active") == 1
    assert scrape.value("pyrometer_gpu_bank_remapping_pending", gpu="1") == 1
    older = _node(make_node, "610.43.02", remapped=rows).scrape()
    assert older.value("pyrometer_gpu_inactive_row_remappings", gpu="1", error="uncorrected") == 2
    assert older.values("pyrometer_gpu_bank_remappings") == {}


def test_each_nvlink_says_whether_it_is_up(make_node: Any) -> None:
    scrape = _node(make_node, nvlinks_down=[3, 17]).scrape()
    down = {labels[2] for labels, up in scrape.values("pyrometer_gpu_nvlink_up", gpu="1").items() if up == 0}
    assert down == {"3", "17"}
    assert scrape.value("pyrometer_gpu_nvlinks_up", gpu="1") == 16
    assert list(scrape.values("pyrometer_gpu_nvlink_up", gpu="0").values()) == [1] * 18


def test_nvlink_errors_up_to_hopper(make_node: Any) -> None:
    scrape = _node(make_node, nvlink_errors={"3/replay": 5, "3/crc": 2, "17/recovery": 1}).scrape()
    names = [f"DCGM_FI_DEV_NVLINK_{name}_ERROR_COUNT_TOTAL" for name in ("CRC_FLIT", "CRC_DATA", "REPLAY", "RECOVERY")]
    assert _values(scrape, tuple(names), gpu="1") == [2, 0, 5, 1]
    per_link = scrape.values("pyrometer_gpu_nvlink_link_errors_total", gpu="1")
    told = {labels[2:]: value for labels, value in per_link.items() if value}
    assert told == {("3", "replay"): 5, ("3", "crc"): 2, ("17", "recovery"): 1}
    assert len(per_link) == 3 * 18
    assert scrape.values("pyrometer_gpu_nvlink_link_errors_total", gpu="0") == {}  # nothing to tell apart
    assert scrape.values("pyrometer_gpu_nvlink_errors_total") == {}


def test_nvlink_errors_from_blackwell_on(make_node: Any) -> None:
    errors = {"3/link_recovery_events": 5, "4/link_recovery_events": 1, "4/malformed_packet_errors": 2}
    scrape = _node(make_node, nvlink_generation=5, nvlink_errors=errors).scrape()
    assert scrape.value("pyrometer_gpu_nvlink_errors_total", gpu="1", error="link_recovery") == 6
    assert scrape.value("pyrometer_gpu_nvlink_errors_total", gpu="1", error="malformed_packet") == 2
    assert scrape.value("pyrometer_gpu_nvlink_link_errors_total", gpu="1", link="3", error="link_recovery") == 5
    assert scrape.value("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", gpu="1") is None


def test_a_gpu_without_nvlink_has_no_links(make_node: Any) -> None:
    scrape = _node(make_node, nvlinks=0).scrape()
    assert scrape.downs == {}
    assert [
        name for name in scrape.names_of("1") if name.startswith("pyrometer_gpu_nvlink_") and "bytes" not in name
    ] == []


def test_the_pcie_link_and_what_it_could_be(make_node: Any) -> None:
    node = _node(make_node, pcie={"width": 8, "gen": 4}, pcie_errors={"bad_tlp": 3})
    node.gpus[0].load()
    scrape = node.scrape()
    names = tuple(f"DCGM_FI_DEV_PCIE_{name}" for name in ("LINK_WIDTH", "LINK_GEN", "MAX_LINK_WIDTH", "MAX_LINK_GEN"))
    assert _values(scrape, names, gpu="0") == [16, 5, 16, 5]
    assert _values(scrape, names, gpu="1") == [8, 4, 16, 5]
    assert scrape.value("pyrometer_gpu_pcie_errors_total", gpu="1", error="bad_tlp") == 3


@pytest.mark.parametrize("nothing", [0, 0xFFFFFFFF])
def test_a_link_that_is_none_is_absent_and_no_degraded_one(make_node: Any, nothing: int) -> None:
    scrape = _node(
        make_node, pcie={"width": nothing, "gen": nothing, "max_width": nothing, "max_gen": nothing}
    ).scrape()
    assert not [name for name in scrape.names_of("1") if name.startswith("DCGM_FI_DEV_PCIE_") and "LINK" in name]
    assert scrape.value("DCGM_FI_DEV_PCIE_LINK_WIDTH", gpu="0") == 16
    assert scrape.downs == {}


def test_a_count_that_cannot_be_true_is_left_out_alone(make_node: Any) -> None:
    scrape = _node(make_node, ecc_errors={"volatile/device_memory/uncorrected": (1 << 64) - 1}).scrape()
    assert scrape.values("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", gpu="1") == {}
    assert scrape.value("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", gpu="1") == 0
    assert scrape.downs == {}


def test_counts_that_stand_still_grow_go_and_come_again_are_told_as_they_are(make_node: Any) -> None:
    node = make_node(count=2, still=True)
    place = "volatile/device_memory/uncorrected"
    unread: dict[str, int] = {}
    for count, errors, told in (
        (0, unread, 0), (0, unread, 0), (3, unread, 3), (3, unread, 3), (3, {"4": 3}, None), (3, unread, 3),
        ((1 << 64) - 1, unread, None), (4, unread, 4),
    ):  # fmt: skip
        node.gpus[1].set(ecc_errors={place: count}, field_errors=errors)
        scrape = node.scrape()
        assert _values(scrape, ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",), gpu="1") == [told]
        assert _values(scrape, ("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"), gpu="0") == [0, 0]


def test_what_the_driver_asks_for_and_what_it_cannot_mend(make_node: Any) -> None:
    scrape = _node(make_node, recovery_action=4, repairs=[0, 1], unrepairable_memory=1).scrape()
    assert scrape.value("pyrometer_gpu_recovery_action", gpu="1") == 4
    assert scrape.value("pyrometer_gpu_repair_pending", gpu="1", repair="channel") == 0
    assert scrape.value("pyrometer_gpu_repair_pending", gpu="1", repair="tpc") == 1
    assert scrape.value("pyrometer_gpu_unrepairable_memory", gpu="1") == 1


def test_the_fabric_and_its_problems(make_node: Any) -> None:
    # The bandwidth is degraded (1), the route is well (2), the configuration has too few NVLinks (5).
    scrape = _node(make_node, fabric={"mask": 1 | 2 << 4 | 5 << 8, "clique": 3}).scrape()
    assert scrape.value("pyrometer_gpu_fabric_state", gpu="1") == 3
    assert scrape.value("pyrometer_gpu_fabric_status", gpu="1") == 0
    problems = {labels[2]: value for labels, value in scrape.values("pyrometer_gpu_fabric_problem", gpu="1").items()}
    assert problems == {"degraded_bandwidth": 1, "route_unhealthy": 0, "incorrect_configuration": 5}
    info = scrape.values("pyrometer_gpu_fabric_info", gpu="1", clique="3")
    assert [labels[2] for labels in info] == ["7a1f1a52-53c4-4b8f-9d5b-0f6f3c2b9e11"]


@pytest.mark.parametrize(("state", "families"), [(2, {"pyrometer_gpu_fabric_state"}), (0, set())])
def test_a_gpu_that_is_not_in_a_fabric_has_at_most_its_state(make_node: Any, state: int, families: set[str]) -> None:
    scrape = _node(make_node, fabric={"state": state}).scrape()
    assert {name for name in scrape.names_of("1") if "fabric" in name} == families
    assert scrape.value("pyrometer_gpu_fabric_state", gpu="1") == (state or None)


@pytest.mark.parametrize(
    ("function", "families"),
    [
        ("nvmlDeviceGetNvLinkState", {"pyrometer_gpu_nvlink_up", "pyrometer_gpu_nvlinks_up"}),
        ("nvmlDeviceGetCurrPcieLinkWidth", {"DCGM_FI_DEV_PCIE_LINK_WIDTH"}),
        ("nvmlDeviceGetMaxPcieLinkGeneration", {"DCGM_FI_DEV_PCIE_MAX_LINK_GEN"}),
        ("nvmlDeviceGetRowRemapperHistogram", set(HISTOGRAM)),
        ("nvmlDeviceGetMemoryErrorCounter", set()),
        ("nvmlDeviceGetMigMode", {"DCGM_FI_DEV_MIG_MODE"}),
        ("nvmlDeviceGetRepairStatus", {"pyrometer_gpu_repair_pending"}),
        ("nvmlDeviceGetUnrepairableMemoryFlag_v1", {"pyrometer_gpu_unrepairable_memory"}),
        (
            "nvmlDeviceGetGpuFabricInfoV",
            {f"pyrometer_gpu_fabric_{name}" for name in ("state", "status", "problem", "info")},
        ),
    ],
)
@pytest.mark.parametrize("code", [3, 4, 13, 999])
def test_a_call_that_fails_costs_its_own_families_on_its_own_gpu(
    make_node: Any, healthy: set[str], function: str, families: set[str], code: int
) -> None:
    _same_as_before(healthy, _node(make_node, errors={function: code}).scrape(), *families)


@pytest.mark.parametrize("code", [2, 3, 999])
def test_a_field_that_fails_costs_its_own_family_on_its_own_gpu(make_node: Any, healthy: set[str], code: int) -> None:
    scrape = _node(make_node, field_errors={"230": code, "145": code}).scrape()
    _same_as_before(healthy, scrape, "pyrometer_gpu_recovery_action", "DCGM_FI_DEV_ROW_REMAP_FAILURE")


@pytest.mark.parametrize(
    ("driver", "absent"),
    [
        ("535.183.01", {"fabric_state", "recovery_action", "repair_pending", "unrepairable_memory"}),
        ("550.54.15", {"recovery_action", "repair_pending", "unrepairable_memory"}),
        ("570.86.15", {"repair_pending", "unrepairable_memory"}),
        ("575.51.03", {"repair_pending", "unrepairable_memory"}),
        ("580.65.06", {"unrepairable_memory"}),
        ("590.48.01", set()),
        ("610.43.02", set()),
    ],
)
def test_older_drivers_lack_what_they_do_not_know_and_nothing_else(
    make_node: Any, driver: str, absent: set[str]
) -> None:
    scrape = make_node(count=1, driver=driver).scrape()
    assert scrape.downs == {}
    all_of_them = ("fabric_state", "recovery_action", "repair_pending", "unrepairable_memory", "nvlink_up")
    found = {name for name in all_of_them if scrape.values(f"pyrometer_gpu_{name}")}
    assert found == set(all_of_them) - absent
    assert _values(scrape, (*ECC_TOTALS, *REMAPPED, *HISTOGRAM)).count(None) == 0


def test_what_changes_rarely_is_read_once_a_minute_and_never_older(make_node: Any) -> None:
    node = make_node(count=1, still=True, scraped=True)
    node.gpus[0].set(spare_banks=[2559, 1, 0, 0, 0], nvlinks_down=[1], remapped={"pending": 1})
    calls = node.library.calls["nvmlDeviceGetRowRemapperHistogram"]
    scrape = node.scrape_every(59)
    assert node.library.calls["nvmlDeviceGetRowRemapperHistogram"] == calls
    assert scrape.value("DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_HIGH") == 0
    assert scrape.value("DCGM_FI_DEV_ROW_REMAP_PENDING") == 1  # this is read every time
    assert scrape.value("pyrometer_gpu_nvlink_up", link="1") == 0
    assert node.scrape_every(1).value("DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_HIGH") == 1


def test_a_gpu_that_comes_back_is_read_anew(make_node: Any) -> None:
    node = make_node(count=1, still=True, scraped=True)
    node.gpus[0].lose()
    assert node.scrape().values("DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_HIGH") == {}
    node.gpus[0].recover()
    node.gpus[0].set(spare_banks=[2559, 1, 0, 0, 0])
    assert node.scrape().value("DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_HIGH") == 1
