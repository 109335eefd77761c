"""How much of the rings is followed, in all and for each user, so that no user's rings cost another's theirs."""

from __future__ import annotations

# A node has 8-16 ranks, plus leftovers of crashed runs. Each ring followed is a descriptor and about 30 series.
MAX_RINGS = 256
MAX_RINGS_PER_USER = 128
# Packed, a batch is about 120 bytes: 15 MB, and 50 minutes of ten runs at 4 steps/s.
MAX_POINTS_IN_ALL = 120_000
# A ring found whole is 4,096. More in one go would hold up a scrape; a second later it goes on.
MAX_RECORDS_PER_POLL = 8_192
