"""One operator's setting for what is served: engine, web and trainer have the same default and get the same value."""

import pytest
import yaml

from inference.settings import EngineSettings
from local_stack.home import ROOT, Home
from local_stack.plan import base_env
from training_jobs.settings import Settings as TrainerSettings
from webapp.config.settings import Settings as WebSettings

PARTS = {
    "ATTUNE_MAX_RANK": ("x-app", "x-engine"),
    "ATTUNE_MAX_MODEL_LEN": ("x-app", "x-engine", "x-trainer"),
}
SETTINGS = {"x-app": WebSettings, "x-engine": EngineSettings, "x-trainer": TrainerSettings}


@pytest.mark.parametrize("name", PARTS)
def test_the_default_is_one(name):
    field = name.removeprefix("ATTUNE_").lower()
    assert len({SETTINGS[part].model_fields[field].default for part in PARTS[name]}) == 1


@pytest.mark.parametrize("name", PARTS)
def test_compose_gives_all_parts_the_same(name):
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text())
    given = {compose[part]["environment"][name] for part in PARTS[name]}
    default = SETTINGS["x-engine"].model_fields[name.removeprefix("ATTUNE_").lower()].default
    assert given == {f"${{{name.removeprefix('ATTUNE_')}:-{default}}}"}


@pytest.mark.parametrize("name", PARTS)
def test_the_local_stack_gives_all_parts_the_callers(name, tmp_path):
    assert base_env(Home(tmp_path), {name: "64"})[name] == "64"
