"""The benchmark's ratios, and that both its ways train everybody on one base; the figures are for quiet machines."""

import pytest
import torch

from benchmarks.many_users import BATCH, Setting, rounds_of, share_of_products, summary, table
from tests.training_jobs.tiny import tiny_model, tiny_tokenizer
from training_jobs.messages import Recipe


@pytest.mark.slow
def test_both_ways_train_the_same_rows_and_leave_the_base_as_it_was():
    model = tiny_model()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    recipe = Recipe(method="direft", position="prefill", rank=2)
    setting = Setting(model, tiny_tokenizer(), recipe, users=3, steps=2)
    (found,) = rounds_of(setting, 1)
    alone, together = found["alone"], found["together"]
    assert alone["real"] == together["real"] > 0, "the same tokens but for padding"
    assert min(alone["tokens"], together["tokens"]) > alone["real"], "padding is computed, too"
    assert (alone["rows_a_pass"], together["rows_a_pass"]) == (BATCH, 1.5 * BATCH), "12 rows in two passes"
    assert 0 < share_of_products(setting) < 1
    after = model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_ratios_are_paired_by_round_and_tokens_are_those_of_the_median_run():
    def way(seconds, tokens):
        return {
            "seconds": 2 * seconds,
            "processor_seconds": seconds,
            "tokens": tokens,
            "real": 80,
            "rows_a_pass": 4,
        }

    rounds = [
        {"alone": way(4.0, 100), "together": way(2.0, 80)},
        {"alone": way(8.0, 100), "together": way(8.0, 80)},
        {"alone": way(6.0, 100), "together": way(2.0, 80)},
    ]
    found = summary(rounds)
    for what in ("seconds", "processor_seconds"):
        assert found[f"ratio_of_{what}"] == {"median": 2.0, "least": 1.0, "greatest": 3.0, "count": 3}
    assert found["alone"]["padding"] == pytest.approx(0.2)
    assert found["together"]["tokens_a_second"] == 40.0
    text = table([{"model": "m", "method": "lora", "steps": 2, "products": 0.5, **found}])
    ratio = "2.00 (1.00 to 3.00)"
    assert f"| m | lora | 3.00 → 1.00 | {ratio} | {ratio} | 20% → 0% | 17 → 40 | 50% |" in text
