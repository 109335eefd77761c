from __future__ import annotations

from pathlib import Path

import pytest
from tools import messages_page

from pyrometer_alerting.channel.card import MOST_WORDS, card_of, words
from pyrometer_alerting.channel.first_steps import SCHEDULERS

ROOT = Path(__file__).parents[2]


def test_the_page_is_what_the_service_says() -> None:
    page = (ROOT / "docs/messages.md").read_text(encoding="utf-8")
    assert page == messages_page.page(), "docs/messages.md is outdated; run: make reference"
    assert len(messages_page.incidents()) == 10


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_no_card_has_more_words_than_it_may(scheduler: str) -> None:
    for kind, incident in messages_page.incidents().items():
        card = card_of(incident, scheduler)
        assert words("\n".join(card.lines)) <= MOST_WORDS, kind
        assert card.now, kind
