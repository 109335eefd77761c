"""NVLink: which links are up, and their errors.

Source: nvmlDeviceGetFieldValues with the link as scope: field 165 (nvml.h, NVML_FI_DEV_NVLINK_GET_STATE); up to Hopper
fields 161-163 (NVML_FI_DEV_NVLINK_ERROR_DL_*) and the totals 38, 45, 52 and 59; from NVLink 5 on fields 205-215, 219
and 221 (NVML_FI_DEV_NVLINK_COUNT_*), for all links together with the scope 0xFFFFFFFF; and nvmlDeviceGetNvLinkState.

NCCL takes a link's state from field 165 from Hopper on, and from the call before. The call, for each of 18 links of 8
GPUs, was two of five of all that a scrape asked of the driver. So the field is believed, once each link's has been
compared with what the call says, and is compared again once a minute; where it fails that, the call goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pyrometer_exporters.framework.metrics import NO_SAMPLES, Columns, Sample, columns_of
from pyrometer_exporters.node.gpu.clock_events import version_numbers
from pyrometer_exporters.node.gpu.families import GpuFamilies, seldom
from pyrometer_exporters.node.gpu.field_subject import FieldSample, FieldSubject
from pyrometer_exporters.node.gpu.nvml import FieldKey
from pyrometer_exporters.node.gpu.subject import OpenGpu, SubjectSpec

LINK_COUNT_FIELD = 91  # NVML_FI_DEV_NVLINK_LINK_COUNT
STATE_FIELD = 165  # NVML_FI_DEV_NVLINK_GET_STATE
MOST_LINKS = 36  # NVML_NVLINK_MAX_LINKS
ALL_LINKS = 0xFFFFFFFF
NVLINK5_DRIVER = (560,)  # the first whose nvml.h has fields 201-222

# fmt: off
_ROWS = GpuFamilies()
UP = _ROWS.gauge("pyrometer_gpu_nvlink_up",
    "1 if the NVLink is up, from NVML field 165 or nvmlDeviceGetNvLinkState; 0 also where nothing is connected to it.",
    "link")
LINKS_UP = _ROWS.gauge("pyrometer_gpu_nvlinks_up",
    "How many of the GPU's NVLinks are up, from NVML field 165 or nvmlDeviceGetNvLinkState; 18 on a healthy H100 SXM.")
CRC_FLIT = _ROWS.dcgm_counter("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
    "Flow-control units received over NVLink with a wrong checksum, up to Hopper, from NVML field 38.")
CRC_DATA = _ROWS.dcgm_counter("DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL",
    "Data received over NVLink with a wrong checksum, up to Hopper, from NVML field 45.")
REPLAY = _ROWS.dcgm_counter("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
    "Retransmissions over NVLink, up to Hopper, from NVML field 52.")
RECOVERY = _ROWS.dcgm_counter("DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
    "NVLinks that had to be trained again, up to Hopper, from NVML field 59.")
ERRORS = _ROWS.counter("pyrometer_gpu_nvlink_errors_total",
    "Errors of all NVLinks of the GPU together from NVLink 5 (Blackwell) on, from NVML fields 205-215, 219 and 221 "
    "(driver 560 and newer).", "error")
LINK_ERRORS = _ROWS.counter("pyrometer_gpu_nvlink_link_errors_total",
    seldom("Errors of one NVLink: replay, recovery and crc from NVML fields 161-163 up to Hopper, "
    "link_recovery_failed, link_recovery and effective from fields 214, 215 and 219 from NVLink 5 on; absent "
    "for an error that no link of the GPU has had"), "link", "error")
# fmt: on

_HOPPER_LINK_ERRORS = {161: "replay", 162: "recovery", 163: "crc"}
_NVLINK5_LINK_ERRORS = {214: "link_recovery_failed", 215: "link_recovery", 219: "effective"}
_NVLINK5_ERRORS = {
    205: "vl15_dropped",
    206: "malformed_packet",
    207: "buffer_overrun",
    208: "receive",
    209: "receive_remote",
    210: "receive_general",
    211: "local_link_integrity",
    212: "transmit_discard",
    213: "link_recovery_successful",
    214: "link_recovery_failed",
    215: "link_recovery",
    219: "effective",
    221: "symbol",
}
_TOTALS = [
    FieldSample(38, CRC_FLIT),
    FieldSample(45, CRC_DATA),
    FieldSample(52, REPLAY),
    FieldSample(59, RECOVERY),
    *(
        FieldSample((field, ALL_LINKS), ERRORS, (error,), since_driver=NVLINK5_DRIVER)
        for field, error in _NVLINK5_ERRORS.items()
    ),
]


class _NvlinkHealth(FieldSubject):
    def __init__(self) -> None:
        super().__init__()
        self._links: list[int] = []
        self._link_fields: dict[int, str] = {}
        self._states: list[FieldKey] = []
        self._wanted_with_states: list[FieldKey] = []
        self._believed = False
        """Whether the fields said the same as the calls when both were asked."""
        self._shown: tuple[dict[int, bool], Columns] = {}, NO_SAMPLES
        """Which links were up, and what said so."""

    def open(self, gpu: OpenGpu) -> None:
        """See FieldSubject."""
        super().open(gpu)
        self._wanted_with_states = [*self._wanted, *self._states]

    def defined(self, gpu: OpenGpu) -> tuple[Sequence[FieldSample], Sequence[FieldSample]]:
        """Return none for a GPU without links."""
        count = gpu.nvml.fields(gpu.handle, [LINK_COUNT_FIELD]).get(LINK_COUNT_FIELD, 0)
        self._links = list(range(int(count))) if 0 <= count <= MOST_LINKS else []
        self._link_fields = {**_HOPPER_LINK_ERRORS, **_newer(gpu.identity.driver)}
        self._states = [(STATE_FIELD, link) for link in self._links]
        self._shown = {}, NO_SAMPLES
        return (_TOTALS, ()) if self._links else ((), ())

    def fields(self) -> Sequence[FieldKey]:
        """Return the links' states; seldom, each kind of error of each link as well."""
        wanted = super().fields()
        if self.due:
            return [*wanted, *self._states, *((field, link) for link in self._links for field in self._link_fields)]
        return self._wanted_with_states if self._believed else wanted

    def rare(self, fields: Mapping[FieldKey, float]) -> Iterable[Sample]:
        """Which link the errors are of; 54 zeros for each healthy GPU would be most of its series."""
        for field, error in self._link_fields.items():
            counts = {link: fields[field, link] for link in self._links if (field, link) in fields}
            if any(counts.values()):
                for link, count in counts.items():
                    yield self.gpu.own(LINK_ERRORS, count, str(link), error)

    def now(self, fields: Mapping[FieldKey, float]) -> Iterable[Columns]:
        """Which links are up."""
        states = self._up(fields)
        if states != self._shown[0]:
            rows = [self.gpu.own(UP, int(up), str(link)) for link, up in states.items()]
            self._shown = (
                states,
                columns_of([*rows, *([self.gpu.own(LINKS_UP, sum(states.values()))] if states else [])]),
            )
        return (self._shown[1],)

    def _up(self, fields: Mapping[FieldKey, float]) -> dict[int, bool]:
        """By link, as far as the driver says."""
        by_field = {link: fields[key] != 0 for link, key in enumerate(self._states) if key in fields}
        if self._believed and not self.due and len(by_field) == len(self._links):
            return by_field
        answers = {link: self.ask_number("nvmlDeviceGetNvLinkState", link) for link in self._links}
        by_call = {link: state != 0 for link, state in answers.items() if state is not None}
        self._believed = by_field == by_call
        return by_call


def _newer(driver: str) -> dict[int, str]:
    return _NVLINK5_LINK_ERRORS if version_numbers(driver) >= NVLINK5_DRIVER else {}


SUBJECT = SubjectSpec("nvlink_health", tuple(_ROWS), _NvlinkHealth)
