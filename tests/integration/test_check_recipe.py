# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""``energon-pack check`` on recipes that are real; no GPU and no Transformer Engine needed."""

import json
from pathlib import Path

import pytest

from energon_pack.cli import main
from energon_pack.config import load_config
from energon_pack.guard import GuardError

RECIPES = Path(__file__).parents[2] / "recipes"

EIGHT = {
    "mtp",
    "cuda-graphs",
    "pipeline",
    "dist-train",
    "text-only-packs",
    "global-batch",
    "hierarchy-product",
    "hierarchy-groups",
}
BROKEN = """
from megatron.bridge.recipes.qwen_vl import qwen3_vl_8b_sft_config


def broken():
    print("recipes may print")
    cfg = qwen3_vl_8b_sft_config()
    cfg.model.mtp_standalone = True
    cfg.model.cuda_graph_impl = "transformer_engine"
    cfg.model.pipeline_model_parallel_size = 2
    cfg.model.dist_train.use_dist_train = True
    cfg.ddp.overlap_grad_reduce = True
    cfg.train.global_batch_size = 31
    cfg.model.context_parallel_size = 2
    cfg.model.cp_comm_type = "a2a+p2p"
    cfg.model.hierarchical_context_parallel_sizes = [2, 2]
    cfg.dist.use_decentralized_pg = True
    return cfg
"""


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "data.yaml"
    path.write_text("path: /data/images\nmodel: Qwen/Qwen3-VL-8B-Instruct\n")
    return path


@pytest.fixture
def run(bridge, monkeypatch, capsys, data):
    """A function from arguments to exit status, standard output and standard error."""
    monkeypatch.setenv("WORLD_SIZE", "16")

    def call(recipe, *arguments):
        with pytest.raises(SystemExit) as stopped:
            main(["check", "--recipe", str(recipe), "--data", str(data), *arguments])
        out, err = capsys.readouterr()
        return stopped.value.code, out, err

    return call


@pytest.fixture
def broken(tmp_path):
    path = tmp_path / "broken_recipe.py"
    path.write_text(BROKEN)
    return path


def test_eight_faults_are_told_in_one_go_by_use_packing(recipe, broken, data, monkeypatch):
    from energon_pack.bridge import use_packing

    monkeypatch.setenv("WORLD_SIZE", "16")
    names: dict = {}
    exec(broken.read_text(), names)
    with pytest.raises(GuardError) as caught:
        use_packing(names["broken"](), load_config(data))
    assert {finding.code for finding in caught.value.report.of("error")} == EIGHT
    assert all(f"[{code}]" in str(caught.value) for code in EIGHT)


def test_eight_faults_are_told_in_one_go_by_check(run, broken):
    code, out, _ = run(f"{broken}:broken", "--format", "json")
    assert code == 1
    assert {finding["code"] for finding in json.loads(out)["findings"]} == EIGHT


def test_overrides_and_skips_with_a_reason_mend_what_they_name(run, broken):
    code, out, _ = run(
        f"{broken}:broken",
        "--format=json",
        "--skip=cuda-graphs=tried: it's fine",
        "--skip=text-only-packs=every sample has an image",
        "model.mtp_standalone=false",
        "model.pipeline_model_parallel_size=1",
        "model.dist_train.use_dist_train=false",
        "model.hierarchical_context_parallel_sizes=[2,1]",
        "dist.use_decentralized_pg=false",
        "train.global_batch_size=32",
    )
    report = json.loads(out)
    assert code == 0, out
    assert {rule["code"]: rule["reason"] for rule in report["skipped"]} == {
        "cuda-graphs": "tried: it's fine",
        "text-only-packs": "every sample has an image",
    }
    assert "hierarchy-engine" in {rule["code"] for rule in report["unknown"]}


@pytest.mark.parametrize(
    "name", ["qwen3_vl_30b_a3b_sft", "qwen3_vl_8b_long_video", "qwen3_vl_8b_hierarchical_cp"]
)
def test_shipped_recipes_pass_without_a_gpu_and_without_a_warning(run, name):
    code, out, _ = run(f"{RECIPES / 'qwen3_vl.py'}:{name}")
    assert code == 0
    assert "0 errors, 0 warnings" in out


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        (None, "x", "is no file"),
        ("x = 1", "y", "has no recipe 'y'"),
        ("import no_such_package", "y", "--facts facts.yaml"),
        ("def y():\n    raise KeyError('hub')", "y", "cannot be built: KeyError: 'hub'"),
    ],
)
def test_a_recipe_that_cannot_be_built_is_not_checked(run, tmp_path, content, name, message):
    path = tmp_path / "recipe.py"
    if content is not None:
        path.write_text(content)
    code, _, err = run(f"{path}:{name}")
    assert code == 2
    assert message in err
    assert "Traceback" not in err
