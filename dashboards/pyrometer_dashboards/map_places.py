"""Places of the GPU map's squares, and their sizes on a wide screen and on a phone."""

from __future__ import annotations

from pyrometer_dashboards.common import CLUSTER

# Sizes of a point in pixels: those of cluster:pyrometer_map:size, which the label y_<size> selects.
SIZES = (48, 32, 22, 16, 11, 8, 5, 4, 3)
# The rules fill a sheet of 1,032 pixels, a phone has 380 for it: the largest size that leaves a gap.
_ON_A_PHONE = {4: 3, 5: 3, 8: 3, 11: 4, 16: 5, 22: 8, 32: 11, 48: 16}
# Grafana's interval is the range by the panel's width in pixels, rounded by up to a half: a phone's 404 pixels look
# like at most 707, the 1,034 of a laptop beside the docked menu like at least 723. Only with a least interval of 1 ms.
_WIDTH = "vector($__range_ms / $__interval_ms)"
LEAST_INTERVAL = "1ms"


def places() -> str:
    """Return each GPU's place, with its coordinates as labels; on a phone's narrow panel the squares are smaller."""
    place = f'gpu:pyrometer_map:place{{{CLUSTER}, arrange="$arrange"}}'
    small = f"{place} and on () {_WIDTH} < 715"
    # Small ones first, or a square would shrink twice.
    for size, less in _ON_A_PHONE.items():
        small = f'label_replace({small}, "y_{less}", "$1", "y_{size}", "(.+)")'
        small = f'label_replace({small}, "y_{size}", "", "y_{size}", ".+")'
    return f"({place} and on () {_WIDTH} >= 715 or {small})"
