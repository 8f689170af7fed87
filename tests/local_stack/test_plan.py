"""What is started and what is refused, before anything runs."""

import os
import subprocess
from pathlib import Path

import pytest

from local_stack.home import PARTS, ROOT, Home, StackError
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


def test_the_base_that_is_served_becomes_the_default(tmp_path: Path):
    (tmp_path / "models" / "tiny").mkdir(parents=True)
    (tmp_path / "models" / "tiny" / "config.json").write_text("{}")
    environ = {"ATTUNE_MODELS_DIR": str(tmp_path / "models"), "ATTUNE_BASE_MODEL": "tiny"}
    made = {service.name: service for service in plan(Home(tmp_path), parts=PARTS, environ=environ).services}
    assert made["base-model"].command[-3:] == (
        "base_model_add",
        str(tmp_path / "models" / "tiny"),
        "--default",
    )
    assert made["engine"].env["ATTUNE_BASE_MODEL"] == "tiny"


def test_no_base_model_is_named():
    plain = {"PATH": os.environ["PATH"]}  # make hands its own options down
    done = subprocess.run(
        ["make", "base-model"], cwd=ROOT, env=plain, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "Say which: make base-model MODEL=" in done.stderr
    assert done.stdout == "", "nothing was set up or started"
