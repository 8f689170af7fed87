"""What is started and what is refused, before anything runs."""

from pathlib import Path

import pytest

from local_stack.home import PARTS, Home, StackError
from local_stack.plan import plan

ELSEWHERE = {"ATTUNE_WEB_URL": "http://web.example", "ATTUNE_TRAINER_TOKEN": "x" * 32}


def test_a_web_application_elsewhere_has_its_own_broker(tmp_path: Path):
    with pytest.raises(StackError, match="ATTUNE_BROKER_URL"):
        plan(Home(tmp_path), parts=PARTS, environ=ELSEWHERE)
    both = {**ELSEWHERE, "ATTUNE_BROKER_URL": "redis://broker.example:6379/0"}
    made = plan(Home(tmp_path), parts=["trainer"], environ=both)
    [trainer] = made.services
    assert trainer.env["ATTUNE_BROKER_URL"] == both["ATTUNE_BROKER_URL"]
    assert trainer.env["ATTUNE_WEB_URL"] == ELSEWHERE["ATTUNE_WEB_URL"]
