"""Every rule has a pair: a file that has the fault, and the same file without it."""

from __future__ import annotations

import re

import pytest

from gradwire.lint.rules.table import RULES
from gradwire.targets.schema import load_schema
from tests.lint.linting import codes, lint
from tests.lint.pairs_accelerate import PAIRS as ACCELERATE_PAIRS
from tests.lint.pairs_accelerate import fsdp
from tests.lint.pairs_deepspeed import PAIRS as DEEPSPEED_PAIRS

PAIRS = {**DEEPSPEED_PAIRS, **ACCELERATE_PAIRS}


def test_every_rule_has_a_pair_and_every_pair_a_rule() -> None:
    assert sorted(PAIRS) == sorted(rule.code for rule in RULES)


def test_codes_and_names_are_unique_and_well_formed() -> None:
    found = [rule.code for rule in RULES]
    assert len(set(found)) == len(found)
    assert all(re.fullmatch(r"(AC|DS|PR|RD|TR)\d{3}", code) for code in found)
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.name) and rule.summary.endswith(".") for rule in RULES)


@pytest.mark.parametrize("code", sorted(PAIRS))
def test_the_file_with_the_fault_is_found_and_the_one_without_is_not(code: str) -> None:
    faulty, sound = PAIRS[code]
    assert code in codes(lint(**faulty))
    assert code not in codes(lint(**sound))


@pytest.mark.parametrize("code", sorted(PAIRS))
def test_a_finding_says_where_what_happens_and_what_to_do(code: str) -> None:
    finding = next(each for each in lint(**PAIRS[code][0]) if each.code == code)
    assert finding.line >= 1 and finding.column >= 1
    assert finding.message and finding.effect and finding.fix
    assert finding.url is None or finding.url.startswith("https://")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("fsdp_version: 2\nfsdp_sharding_strategy: SHARD_GRAD_OP", "AC307"),
        ("fsdp_sync_module_states: false", "AC308"),
        ("fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\nfsdp_min_num_params: 1000", "AC309"),
    ],
)
def test_keys_of_fsdp_without_their_prefix_are_the_same_keys(text: str, code: str) -> None:
    found = [each for each in lint(**fsdp(text.replace("fsdp_", ""))) if each.code == code]
    assert (
        [("fsdp_config.fsdp" in each.path, each.fix) for each in found]
        == [(False, each.fix) for each in lint(**fsdp(text)) if each.code == code]
        != []
    )


def test_rules_of_a_version_are_for_a_version_that_the_schema_can_name() -> None:
    for rule in RULES:
        for bound in (rule.since, rule.until):
            assert bound is None or re.fullmatch(r"\d+\.\d+\.\d+", bound)
    assert load_schema("deepspeed")["x-library"]["versions"][-1] >= "0.19.3"
