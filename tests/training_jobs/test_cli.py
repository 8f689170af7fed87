"""attune-train: a file of conversations and a base model's folder in, an adapter's folder out."""

import ast
import json
import re
from pathlib import Path

import pytest

from adapters_store.weights import adapter_read
from tests.training_jobs.tiny import tiny_folder, tiny_tokenizer
from training_jobs.cli import main
from training_jobs.conversation_file import conversations


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("base") / "tiny")


def row(number: int, **more: object) -> str:
    messages = [
        {"role": "user", "content": f"{number}?"},
        {"role": "assistant", "content": f"Aye, {number}!"},
    ]
    return json.dumps({"messages": messages, **more})


def run(tmp_path: Path, base: Path, rows: list[str], *more: str) -> Path:
    data, out = tmp_path / "data.jsonl", tmp_path / "out" / "mine"
    data.write_text("\n".join(rows))
    main([str(data), "--base", str(base), "--out", str(out), "--epochs", "1", *more])
    return out


@pytest.mark.slow
def test_a_file_becomes_an_adapter_that_loads(tmp_path, base, capsys):
    out = run(tmp_path, base, [row(number) for number in range(20)], "--method", "lora", "--rank", "2")
    manifest, tensors = adapter_read(out)
    assert (manifest.method, manifest.position, manifest.rank, manifest.base.name) == (
        "lora",
        "prefill",
        2,
        "tiny",
    )
    assert (manifest.training["examples"], manifest.training["held_out_examples"]) == (18, 2)
    assert any(tensor.any() for name, tensor in tensors.items() if "lora_B" in name)
    said = capsys.readouterr()
    assert "Held-out loss" in said.out
    assert "tokens of 2 conversations" in said.out
    assert "That is too little to judge by" in said.out
    assert "in the system prompt instead" in said.out
    assert "Skipped, because there is no engine here" in said.out
    assert manifest.name in said.out
    assert "loss=" in said.err, "a bar shows how far it is"
    assert [path.name for path in out.parent.iterdir()] == ["mine"], "no scratch is left"


def test_a_preview_shows_which_tokens_would_be_learned_and_trains_nothing(tmp_path, base, capsys):
    out = run(tmp_path, base, [row(number) for number in range(20)], "--preview")
    said = capsys.readouterr().out
    assert not out.exists()
    assert "18 answers to learn from: " in said
    assert "2 answers to judge by: " in said
    tokenizer = tiny_tokenizer()
    learned = next(line for line in said.splitlines() if line.startswith("    '"))
    tokens = [ast.literal_eval(token) for token in re.findall(r"'(?:[^'\\\\]|\\\\.)*'", learned)]
    assert "".join(tokens).startswith("Aye, ")
    assert tokens[-1] == tokenizer.eos_token, "where to stop is learned, too"
    assert said.count("Answer ") == 3


@pytest.mark.slow
def test_several_files_are_several_users_trained_together(tmp_path, base, capsys):
    files = {
        "ann": [row(number) for number in range(20)],
        "bob": [row(1), row(3)],
        "eve": [row(0, messages=[])],
    }
    for who, rows in files.items():
        (tmp_path / f"{who}.jsonl").write_text("\n".join(rows))
    paths = [str(tmp_path / f"{who}.jsonl") for who in files]
    out = tmp_path / "out"
    with pytest.raises(SystemExit, match="1 of 3 files gave no adapter"):
        main([*paths, "--base", str(base), "--out", str(out), "--epochs", "1"])
    assert sorted(path.name for path in out.iterdir()) == ["ann", "bob"]
    read = {who: adapter_read(out / who)[0] for who in ("ann", "bob")}
    assert {who: each.training["examples"] for who, each in read.items()} == {"ann": 18, "bob": 2}
    said = capsys.readouterr()
    assert all(each.name in said.out for each in read.values())
    assert "nothing_to_train" in said.out
    assert "ann: held-out loss after step" in said.err
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == [], "no scratch is left"


def test_files_of_one_name_and_adapters_of_all_positions_are_not_trained_together(tmp_path, base, capsys):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "me.jsonl").write_text(row(0))
    both = [str(tmp_path / folder / "me.jsonl") for folder in ("a", "b")]
    out = ["--base", str(base), "--out", str(tmp_path / "out")]
    with pytest.raises(SystemExit):
        main([*both, *out])
    assert "two files have the same name" in capsys.readouterr().err
    (tmp_path / "you.jsonl").write_text(row(1))
    with pytest.raises(SystemExit, match="not_together"):
        main([both[0], str(tmp_path / "you.jsonl"), *out, "--position", "all"])
    assert not (tmp_path / "out").exists()


def test_some_projections_alone(tmp_path, base):
    out = run(tmp_path, base, [row(0), row(2)], "--method", "lora", "--target-modules", "v_proj,q_proj")
    manifest, tensors = adapter_read(out)
    assert {name.split(".")[-3] for name in tensors} == {"q_proj", "v_proj"}
    assert manifest.training["recipe"]["target_modules"] == ["q_proj", "v_proj"]


def test_some_layers_alone(tmp_path, base):
    out = run(tmp_path, base, [row(0), row(2)], "--layers", "1")
    manifest, tensors = adapter_read(out)
    assert {name.split(".layers.")[1].split(".")[0] for name in tensors} == {"1"}
    assert manifest.training["recipe"]["layers"] == [1]


def test_it_stops_when_it_only_gets_worse(tmp_path, base, capsys):
    """Held out is what the others are unlike: whatever is learned from them makes it worse sooner or later."""
    unlike = [{"role": "user", "content": "1?"}, {"role": "assistant", "content": "oh"}]
    rows = [row(number, split="train") for number in range(8)] + [row(9, messages=unlike, split="validation")]
    out = run(tmp_path, base, rows, "--held-out", "0", "--epochs", "30", "--learning-rate", "0.01")
    training = adapter_read(out)[0].training
    assert training["best_step"] < training["steps"] < 60
    assert f"stopped after step {training['steps']} of 60" in capsys.readouterr().err


def test_bad_rows_are_named_and_the_others_trained_on(tmp_path, base, capsys):
    bad = ["{", "[1]", '"x"', "{}", row(1, messages=[{"role": "wizard", "content": "x"}]), ""]
    out = run(tmp_path, base, [row(0), *bad, row(2)], "--held-out", "0")
    said = capsys.readouterr().err
    for line in (2, 3, 4, 5, 6):
        assert f"line {line} is left out: " in said
    assert adapter_read(out)[0].training["examples"] == 2


def test_nothing_held_out_says_so(tmp_path, base, capsys):
    run(tmp_path, base, [row(0), row(2)], "--held-out", "0")
    said = capsys.readouterr().out
    assert "Nothing was held out" in said
    assert "loss" not in said


@pytest.mark.parametrize("text", ["", " \n"])
@pytest.mark.parametrize("role", ["system", "user", "assistant"])
def test_an_empty_text_is_refused_as_at_the_upload(tmp_path, capsys, role, text):
    turns = [
        {"role": each, "content": text if each == role else "Aye!"}
        for each in ("system", "user", "assistant")
    ]
    data = tmp_path / "data.jsonl"
    data.write_text("\n".join([row(0), row(1, messages=turns)]))
    assert len(conversations(data, held_out=0, seed=0)) == 1
    assert f"an empty {role} message" in capsys.readouterr().err


@pytest.mark.parametrize(("rows", "held_out"), [(19, 0), (20, 2)])
def test_as_many_are_held_out_as_in_the_service(tmp_path, capsys, rows, held_out):
    data = tmp_path / "data.jsonl"
    data.write_text("\n".join(row(number) for number in range(rows)))
    talks = conversations(data, held_out=0.05, seed=0)
    assert sum(talk.split == "validation" for talk in talks) == held_out
    assert ("Nothing is held out: there are fewer than 20" in capsys.readouterr().err) == (held_out == 0)


def held(tmp_path: Path, lines: list[str]) -> set[int]:
    data = tmp_path / "data.jsonl"
    data.write_text("\n".join(lines))
    talks = conversations(data, held_out=0.1, seed=0)
    return {number for number, talk in enumerate(talks) if talk.split == "validation"}


def test_pieces_of_a_chat_are_on_one_side(tmp_path):
    names = [f"{chat}.{part}" for chat in range(30) for part in range(1, 4)]
    chosen = held(tmp_path, [row(at, id=name, split="train") for at, name in enumerate(names)])
    chats = {names[at].partition(".")[0] for at in chosen}
    assert len(chats) == 3
    assert chosen == {at for at, name in enumerate(names) if name.partition(".")[0] in chats}


def test_one_chat_is_cut_at_a_silence(tmp_path):
    names = [f"1.{at // 3}.{at % 3 + 1}" for at in range(50)]
    assert held(tmp_path, [row(at, id=name, split="train") for at, name in enumerate(names)]) == {
        48,
        49,
        45,
        46,
        47,
    }
    whole = [f"1.1.{at}" for at in range(50)]
    assert not held(tmp_path, [row(at, id=name, split="train") for at, name in enumerate(whole)])


def test_an_id_of_a_row_that_is_not_normalised_says_nothing(tmp_path):
    assert len(held(tmp_path, [row(at, id="the.same") for at in range(40)])) == 4


def test_pairs_that_answer_one_prompt_are_on_one_side(tmp_path):
    asked = [{"messages": [{"role": "user", "content": f"{at // 2}?"}]} for at in range(60)]
    chosen = held(tmp_path, [pair(at, input=each) for at, each in enumerate(asked)])
    assert len(chosen) == 6
    assert {at // 2 for at in chosen} == {at // 2 for at in range(60) if at in chosen and at ^ 1 in chosen}


@pytest.mark.parametrize(("share", "split"), [(0.0, "train"), (0.1, "validation")])
def test_what_was_asked_for_needs_no_reason(tmp_path, capsys, share, split):
    data = tmp_path / "data.jsonl"
    data.write_text("\n".join([row(0), row(1, split=split)]))
    assert len(conversations(data, held_out=share, seed=0)) == 2
    assert capsys.readouterr().err == ""


def pair(number: int, **more: object) -> str:
    answers = ({"role": "assistant", "content": f"{word}, {number}!"} for word in ("Aye", "Never"))
    preferred, rejected = ([answer] for answer in answers)
    asked = {"messages": [{"role": "user", "content": f"{number}?"}]}
    return json.dumps(
        {"input": asked, "preferred_output": preferred, "non_preferred_output": rejected, **more}
    )


def test_a_file_of_preference_pairs_is_told_by_its_rows(tmp_path, base, capsys):
    bad = [pair(1, input={}), pair(1, non_preferred_output=[]), row(1), pair(1, preferred_output="Aye")]
    out = run(tmp_path, base, [*map(pair, range(20)), *bad], "--beta", "0.5")
    training = adapter_read(out)[0].training
    assert training["hyperparameters"]["beta"] == 0.5
    assert (training["examples"], training["held_out_examples"]) == (18, 2)
    said = capsys.readouterr()
    assert "18 preference pairs, 2 held out" in said.out
    assert "Of 2 held-out pairs the better answer is the likelier one" in said.out
    assert "That is too little to judge by: it takes 10 pairs." in said.out
    assert "the base model's accuracy is" in said.out
    assert "line 21 is left out: it has no 'messages'" in said.err
    assert "line 23 is left out: it is no preference pair, unlike the first row" in said.err
    assert all(f"line {line} is left out" in said.err for line in (22, 24))


def test_a_pair_among_conversations_is_named(tmp_path, capsys):
    data = tmp_path / "data.jsonl"
    data.write_text("\n".join([row(0), pair(1)]))
    assert [talk.id for talk in conversations(data, held_out=0, seed=0)] == ["1"]
    assert "line 2 is left out: it is a preference pair, unlike the first row" in capsys.readouterr().err


def test_nothing_to_train_leaves_nothing(tmp_path, base, capsys):
    with pytest.raises(SystemExit, match="nothing_to_train"):
        run(tmp_path, base, [json.dumps({"messages": [{"role": "user", "content": "only"}]})])
    assert "have no assistant message" in capsys.readouterr().err
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--rank", "0"], "rank"),
        (["--rank", "1000"], "rank"),
        (["--target-modules", "q_proj"], "Only lora has target_modules"),
        (["--method", "lora", "--target-modules", "q_proj,lm_head"], "target_modules"),
        (["--layers", "0,2"], "no layer 2: its 2 layers are 0 to 1. (recipe_unfit)"),
        (["--layers=-1"], "layers"),
        (["--layers", "first"], "--layers"),
        (["--epochs", "-1"], "n_epochs"),
        (["--beta", "0.2"], "--beta"),
        (["--learning-rate", "7"], "learning_rate"),
        (["--base", "nowhere"], "no config.json"),
        (["--held-out", "1"], "--held-out"),
        (["--out", "."], "is there already"),
    ],
)
def test_what_cannot_be_is_refused_with_its_name(tmp_path, base, capsys, more, says):
    with pytest.raises(SystemExit) as ended:
        run(tmp_path, base, [row(0)], *more)
    assert says in f"{ended.value} {capsys.readouterr().err}"
