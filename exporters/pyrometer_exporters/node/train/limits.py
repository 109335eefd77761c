"""How much of the rings is followed, in all and for each user, so that no user's rings cost another's theirs."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

# A node has 8-16 ranks, plus leftovers of crashed runs. Each ring followed is a descriptor and about 30 series.
MAX_RINGS = 256
MAX_RINGS_PER_USER = 128
# Packed, a batch is about 120 bytes: 15 MB, and 50 minutes of ten runs at 4 steps/s.
MAX_POINTS_IN_ALL = 120_000
# A ring found whole is 4,096. More in one go would hold up a scrape; a second later it goes on.
MAX_RECORDS_PER_POLL = 8_192

K = TypeVar("K", bound=Hashable)


def fair_shares(wanted: Mapping[K, int], limit: int, each: int | None = None) -> dict[K, int]:
    """Return what each gets of ``limit``: as much as it wants, at most ``each``, and no more than those that want more.

    >>> fair_shares({"flood": 5000, "job": 8}, 256)
    {'job': 8, 'flood': 248}
    """
    shares: dict[K, int] = {}
    for place, (who, wants) in enumerate(sorted(wanted.items(), key=lambda item: item[1])):
        share = limit // (len(wanted) - place)
        shares[who] = min(wants, share if each is None else min(share, each))
        limit -= shares[who]
    return shares
