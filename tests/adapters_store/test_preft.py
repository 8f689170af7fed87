"""Golden values by hand, and the two identities that the engine relies on."""

import numpy as np
import pytest

from adapters_store.preft.config import PROJECTIONS, TARGET_MODULES, scale_of
from adapters_store.preft.lora import lora_delta
from adapters_store.preft.reft import direft_delta, loreft_delta

H = np.array([[1.0, 2.0, 3.0]])


def test_target_modules_are_the_projections_own_names():
    assert tuple(site.rpartition(".")[2] for site in PROJECTIONS) == TARGET_MODULES


def test_lora_by_hand():
    a, b = np.array([[1.0, 0.0, 1.0]]), np.array([[1.0], [10.0]])
    assert lora_delta(H, a, b, 4.0).tolist() == [[16.0, 160.0]]


def test_direft_by_hand():
    a, bias, b = np.array([[0.0, 1.0, 0.0]]), np.array([5.0]), np.array([[1.0], [0.0], [-1.0]])
    assert direft_delta(H, a, bias, b, 0.5).tolist() == [[3.5, 0.0, -3.5]]


def test_loreft_replaces_the_subspace_of_r_by_what_w_says_when_the_scale_is_one():
    rng = np.random.default_rng(0)
    r = np.linalg.qr(rng.normal(size=(8, 3)))[0].T
    w, bias, h = rng.normal(size=(3, 8)), rng.normal(size=3), rng.normal(size=(5, 8))
    edited = h + loreft_delta(h, r, w, bias, 1.0)
    np.testing.assert_allclose(edited @ r.T, h @ w.T + bias)
    outside = np.eye(8) - r.T @ r
    np.testing.assert_allclose(edited @ outside, h @ outside)


@pytest.mark.parametrize(("method", "scale"), [("lora", 4.0), ("direft", 8**-0.5), ("loreft", 8**-0.5)])
def test_scales_at_rank_eight(method, scale):
    assert scale_of(method, 8) == pytest.approx(scale)
