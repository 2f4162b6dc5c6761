"""Safe fixes: they mend what they say, leave one reading, and every comment stays."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gradwire.errors import UsageError
from gradwire.lint import lint_files
from gradwire.lint.fixing import Fixed, fix_texts, write_fixed
from tests.lint.linting import codes, lint
from tests.lint.pairs_accelerate import PAIRS as ACCELERATE_PAIRS
from tests.lint.pairs_deepspeed import PAIRS


def _fixed(text: str, name: str, tmp_path: Path) -> str:
    path = tmp_path / name
    path.write_bytes(text.encode())
    checked = lint_files([path])
    fixed = fix_texts(checked.findings, checked.texts)
    return fixed[0].after if fixed else text


CASES = {
    "number as text": ('{"train_batch_size": "8"}', '{"train_batch_size": 8}'),
    "old name": (
        '{"train_batch_size": 8, // all ranks\n "zero_optimization": {"stage": 2, "cpu_offload": true}}',
        '{"train_batch_size": 8, // all ranks\n "zero_optimization": {"stage": 2, "offload_optimizer": '
        '{"device": "cpu"}}}',
    ),
    "renamed without quotes": (
        "{train_batch_size: 8\n bfloat16: {enabled: true}}",
        "{train_batch_size: 8\n bf16: {enabled: true}}",
    ),
    "removed, first": ('{"amp": {"enabled": false}, "train_batch_size": 8}', '{"train_batch_size": 8}'),
    "removed, last": ('{"train_batch_size": 8,\n "amp": {"enabled": false}\n}', '{"train_batch_size": 8\n}'),
    "removed, a remark behind": (
        '{"amp": {"enabled": false} /* old */, "train_batch_size": 8}',
        '{"amp": {"enabled": false} /* old */, "train_batch_size": 8}',
    ),
    "switched on, so not safe": (
        '{"amp": {"enabled": true}, "train_batch_size": 8}',
        '{"amp": {"enabled": true}, "train_batch_size": 8}',
    ),
    "oldest switch": (
        '{"train_batch_size": 8, "zero_optimization": true}',
        '{"train_batch_size": 8, "zero_optimization": {"stage": 1}}',
    ),
}


@pytest.mark.parametrize("case", sorted(CASES))
def test_a_deepspeed_file_is_mended_in_place(tmp_path: Path, case: str) -> None:
    before, after = CASES[case]
    assert _fixed(before, "ds.json", tmp_path) == after


YAML_BEFORE = """\
# how we launch
distributed_type: NO   # one process
num_processes: 1
mixed_precision: no
gpu_ids: 0  # the first
fsdp_config:
  fsdp_backward_prefetch_policy: BACKWARD_PRE  # early
"""
YAML_AFTER = """\
# how we launch
distributed_type: 'NO'   # one process
num_processes: 1
mixed_precision: 'no'
gpu_ids: '0'  # the first
fsdp_config:
  fsdp_backward_prefetch: BACKWARD_PRE  # early
"""


def test_an_accelerate_file_is_mended_and_its_comments_stay(tmp_path: Path) -> None:
    assert _fixed(YAML_BEFORE, "a.yaml", tmp_path) == YAML_AFTER


def test_line_ends_and_byte_order_marks_stay(tmp_path: Path) -> None:
    before = '\ufeff{\r\n "train_batch_size": "8"\r\n}'
    assert _fixed(before, "ds.json", tmp_path) == before.replace('"8"', "8")


def test_no_fix_changes_a_file_that_has_no_finding_it_mends(tmp_path: Path) -> None:
    for pairs in (PAIRS, ACCELERATE_PAIRS):
        for code, (faulty, _) in pairs.items():
            for finding in lint(**faulty):
                assert not finding.edits or finding.severity != "note", code


def test_every_safe_fix_mends_its_finding_and_makes_no_new_error(tmp_path: Path) -> None:
    mended = 0
    for code, (faulty, _) in {**PAIRS, **ACCELERATE_PAIRS}.items():
        for kind, name in (("deepspeed", "ds.json"), ("accelerate", "a.yaml")):
            if kind not in faulty:
                continue
            text = faulty[kind] if isinstance(faulty[kind], str) else json.dumps(faulty[kind])
            path = tmp_path / name
            path.write_text(text)
            before = lint_files([path])
            fixed = fix_texts(before.findings, before.texts)
            if not fixed:
                continue
            path.write_text(fixed[0].after)
            after = codes(lint_files([path]).findings, "error")
            assert not set(fixed[0].codes) & set(codes(lint_files([path]).findings)), code
            assert len(after) <= len(codes(before.findings, "error")), code
            mended += 1
    assert mended >= 6


def test_a_file_that_changed_meanwhile_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "ds.json"
    path.write_text("{}")
    with pytest.raises(UsageError, match="changed while it was being checked"):
        write_fixed(Fixed(source=str(path), before="{ }", after="{}", codes=()))
    assert path.read_text() == "{}"


def test_permissions_stay_and_nothing_is_left_beside_the_file(tmp_path: Path) -> None:
    path = tmp_path / "ds.json"
    path.write_text("{}")
    path.chmod(0o640)
    write_fixed(Fixed(source=str(path), before="{}", after="{ }", codes=()))
    assert path.read_text() == "{ }"
    assert path.stat().st_mode & 0o777 == 0o640
    assert [each.name for each in tmp_path.iterdir()] == ["ds.json"]
