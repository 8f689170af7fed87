"""What vLLM is given computes what the method's formula says."""

import numpy as np
import pytest

from adapters_store.errors import AdapterCorrupt
from adapters_store.preft.lora import lora_delta
from adapters_store.preft.reft import direft_delta, loreft_delta
from inference.convert import vllm_matrices
from inference.residual import SITE
from tests.adapters_store.adapters import LAYER, tensors_of, write_adapter


def orthonormal(tensors):
    """Give every R rows that are orthonormal, as training does."""
    return {
        name: np.linalg.qr(array.T)[0].T.astype(np.float32) if name.endswith("loreft_R.weight") else array
        for name, array in tensors.items()
    }


def served(matrices, site, x):
    """What vLLM's LoRA of these matrices adds to a layer: x·Aᵀ·Bᵀ, with the bias column as one more input of 1."""
    a, b = matrices[f"{site}.lora_A.weight"], matrices[f"{site}.lora_B.weight"]
    if a.shape[1] > x.shape[1]:
        x = np.concatenate([x, np.ones((len(x), 1), np.float32)], axis=1)
    return x @ a.T @ b.T


def test_lora(tmp_path):
    tensors = tensors_of("lora")
    manifest = write_adapter(tmp_path, "lora", tensors=tensors)
    site, x = (
        f"{LAYER.format(1)}self_attn.q_proj",
        np.random.default_rng(1).normal(size=(3, 6)).astype(np.float32),
    )
    expected = lora_delta(
        x, tensors[f"{site}.lora_A.weight"], tensors[f"{site}.lora_B.weight"], manifest.scale
    )
    _, matrices = vllm_matrices(tmp_path, manifest.name)
    np.testing.assert_allclose(served(matrices, site, x), expected, rtol=1e-5)
    assert set(matrices) == set(tensors)


@pytest.mark.parametrize(
    ("method", "delta", "parts"),
    [
        ("direft", direft_delta, ("direft_A.weight", "direft_A.bias", "direft_B.weight")),
        ("loreft", loreft_delta, ("loreft_R.weight", "loreft_W.weight", "loreft_W.bias")),
    ],
)
def test_reft(tmp_path, method, delta, parts):
    tensors = orthonormal(tensors_of(method))
    manifest = write_adapter(tmp_path, method, tensors=tensors)
    h = np.random.default_rng(1).normal(size=(3, 6)).astype(np.float32)
    _, matrices = vllm_matrices(tmp_path, manifest.name)
    for layer in range(2):
        at = LAYER.format(layer)
        expected = delta(h, *(tensors[at + part] for part in parts), manifest.scale)
        np.testing.assert_allclose(served(matrices, f"{at}{SITE}", h), expected, rtol=1e-4, atol=1e-5)
    assert len(matrices) == 4


@pytest.mark.parametrize("method", ["lora", "direft", "loreft"])
def test_layers_that_are_not_there_are_not_served(tmp_path, method):
    every = orthonormal(tensors_of(method, layers=3))
    some = {name: array for name, array in every.items() if ".layers.1." not in name}
    folders = {"every": every, "some": some}
    served = {}
    for folder, tensors in folders.items():
        manifest = write_adapter(tmp_path / folder, method, tensors=tensors)
        _, served[folder] = vllm_matrices(tmp_path / folder, manifest.name)
    assert {name.split(".layers.")[1][0] for name in served["some"]} == {"0", "2"}
    for name, matrix in served["some"].items():
        np.testing.assert_array_equal(matrix, served["every"][name])


def test_rows_that_are_nearly_orthonormal_are_made_so_as_training_does(tmp_path):
    exact = orthonormal(tensors_of("loreft"))
    r, at = f"{LAYER.format(0)}loreft_R.weight", f"{LAYER.format(0)}{SITE}"
    manifest = write_adapter(tmp_path, "loreft", tensors=exact | {r: exact[r] * np.float32(1.0004)})
    _, matrices = vllm_matrices(tmp_path, manifest.name)
    rows = matrices[f"{at}.lora_B.weight"].T / np.float32(manifest.scale)
    np.testing.assert_allclose(rows @ rows.T, np.eye(len(rows)), atol=1e-6)
    h = np.random.default_rng(1).normal(size=(3, 6)).astype(np.float32)
    parts = (
        exact[LAYER.format(0) + part] for part in ("loreft_R.weight", "loreft_W.weight", "loreft_W.bias")
    )
    np.testing.assert_allclose(
        served(matrices, at, h), loreft_delta(h, *parts, manifest.scale), rtol=1e-5, atol=1e-6
    )


def test_rows_that_are_not_orthonormal_are_refused(tmp_path):
    manifest = write_adapter(tmp_path, "loreft", tensors=tensors_of("loreft"))
    with pytest.raises(AdapterCorrupt, match="orthonormal"):
        vllm_matrices(tmp_path, manifest.name)


def test_the_name_is_a_promise(tmp_path):
    write_adapter(tmp_path, "direft")
    with pytest.raises(AdapterCorrupt, match="digest"):
        vllm_matrices(tmp_path, "ap-" + "0" * 64)
