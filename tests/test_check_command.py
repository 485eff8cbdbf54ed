# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""``energon-pack check`` without Megatron-Bridge: facts in YAML, the list of rules."""

import json

import pytest

from energon_pack.cli import main
from energon_pack.rules import RULES

SOUND = """
model: {family: qwen3_vl, seq_length: 8192, kv_heads: 8, vision_trained: false}
parallel: {tensor: 2, context: 2, world_size: 16, context_comm: [p2p]}
batch: {global_batch: 16, eval_global: 16, step: vlm_step}
packing: {path: data, model: processor, alignment: 4}
"""


@pytest.fixture
def check(tmp_path, capsys):
    """A function from facts and arguments to exit status, standard output and standard error."""

    def call(facts, *arguments):
        path = tmp_path / "facts.yaml"
        path.write_text(facts)
        try:
            main(["check", "--facts", str(path), *arguments])
        except SystemExit as stopped:
            code = stopped.code
        out, err = capsys.readouterr()
        return code or 0, out, err

    return call


def test_sound_facts_exit_0(check):
    code, out, _ = check(SOUND)
    assert code == 0
    assert "0 errors, 0 warnings" in out


def test_an_error_exits_1_and_is_explained(check):
    code, out, _ = check(
        SOUND + 'other_packing: {owners: ["dataset.enable_in_batch_packing=True"]}'
    )
    assert code == 1
    assert "packing-owners" in out
    assert "dataset.enable_in_batch_packing = True" in out
    assert "1 error, 0 warnings, 0 notes; " in out


def test_json_has_every_part_of_a_finding(check):
    code, out, _ = check(SOUND.replace("alignment: 4", "alignment: 2"), "--format", "json")
    (finding,) = json.loads(out)["findings"]
    assert code == 1
    assert finding["code"] == "alignment"
    assert finding["setting"] == "dataset.alignment"
    assert finding["value"] == "2"
    assert "multiples of 4" in finding["consequence"]
    assert "dataset.alignment=4" in finding["fix"]
    assert "0.6.2" in finding["versions"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--skip", "mtp"], "gives no reason"),
        (["--skip", "mtp= "], "without a reason"),
        (["--skip", "mpt=no"], "did you mean mtp"),
        (["model.seq_length=1"], "give --recipe"),
    ],
)
def test_what_cannot_be_checked_exits_2(check, arguments, message):
    code, _, err = check(SOUND, *arguments)
    assert code == 2
    assert message in err


def test_misspelt_facts_are_told_with_their_path(check):
    code, _, err = check(SOUND.replace("kv_heads", "kv_head").replace("[p2p]", "[1]"))
    assert code == 2
    assert "model.kv_head: is no known setting; did you mean kv_heads?" in err
    assert "parallel.context_comm[0]: is 1; it must be text" in err


def test_a_skipped_rule_is_reported_with_its_reason(check):
    code, out, _ = check(
        SOUND.replace("alignment: 4", "alignment: 2"), "--skip", "alignment=checked by hand"
    )
    assert code == 0
    assert "checked by hand" in out


def test_the_list_has_every_rule(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["check", "--list", "--format", "json"])
    assert not stopped.value.code
    assert [rule["code"] for rule in json.loads(capsys.readouterr().out)] == [r.code for r in RULES]


def test_rule_codes_are_unique():
    codes = [rule.code for rule in RULES]
    assert len(set(codes)) == len(codes)
