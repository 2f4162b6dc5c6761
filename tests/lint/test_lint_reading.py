"""A text becomes the data that its library reads, with every key and value in its place; bad input says why."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gradwire.lint import lint_files
from gradwire.targets.hjson_text import TextError, parse_hjson
from gradwire.targets.loading import Unreadable, parse_document
from gradwire.targets.tree import Document, walk
from gradwire.targets.yaml_text import parse_yaml

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**12), 10**12)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12)
)
NESTED = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
MAPPINGS = st.dictionaries(st.text(max_size=8), NESTED, max_size=5)


@given(MAPPINGS, st.sampled_from([None, 1, "\t"]))
@settings(max_examples=150, deadline=None)
def test_strict_json_reads_as_the_standard_library_reads_it(data: dict[str, Any], indent: Any) -> None:
    text = json.dumps(data, indent=indent)
    root, repeats, syntax, error = parse_hjson(text)
    assert (root.data, repeats, syntax, error) == (json.loads(text), [], "json", None)


HJSON = (
    "{a: 1, b: two words\n c: 0.5}",
    "# remark\n{\n  // one\n  key: [1 2\n 3,], /* two */ \"q\": 'single',\n}",
    "train_batch_size: 8\nzero_optimization: {\n stage: 2\n}\n",
    "{a: true b\n b: -1.5e3 , c: nullx\n}",
    "{text:\n  '''\n  first\n    second\n  '''\n}",
    '{a: "x\\u00e9\\n", b: .5\n c: 01\n}',
    "{a: STAGE },\n b: 2}",
    "{a:b#c\n d: e # f\n}",
)


@pytest.mark.parametrize("text", HJSON)
def test_hjson_reads_as_the_library_of_deepspeed_reads_it(text: str) -> None:
    hjson = pytest.importorskip("hjson", reason="compares with the hjson package, which comes with deepspeed")
    root, _, syntax, error = parse_hjson(text)
    assert root.data == hjson.loads(text)
    assert syntax == "hjson" and error


@given(st.text(alphabet="{}[],:\"'#/*\n\t abt12.-e\\", max_size=30))
@settings(max_examples=300, deadline=None)
def test_whatever_hjson_refuses_is_refused_with_a_place(text: str) -> None:
    hjson = pytest.importorskip("hjson", reason="compares with the hjson package, which comes with deepspeed")
    try:
        expected = hjson.loads(text)
    except (hjson.HjsonDecodeError, IndexError, RecursionError, ValueError):
        expected = None
    try:
        root = parse_hjson(text)[0]
    except TextError as error:
        assert 0 <= error.offset <= len(text)
    else:
        assert expected is None or not isinstance(expected, dict) or root.data == expected


YAML = """\
a: no
b: 1e-4
c: 'no'
d: [1, x]
e: {f: 0o7, g: 010}
h: &anchor {i: 1}
j: *anchor
k:
  <<: *anchor
  l: 2020-01-01
"""


def test_yaml_reads_as_pyyaml_reads_it() -> None:
    root, repeats = parse_yaml(YAML)
    assert root.data == yaml.safe_load(YAML)
    assert repeats == []


@pytest.mark.parametrize(
    ("text", "name"), [('{"a": {"b": [1, 2]},\n "c": "d"}', "x.json"), ("a:\n  b: [1, 2]\nc: d\n", "x.yaml")]
)
def test_every_key_and_value_has_its_place(text: str, name: str) -> None:
    document = parse_document(text, source=name, kind="deepspeed")
    assert isinstance(document, Document)
    for _, member in walk(document.root):
        assert member.name in text[member.start : member.end]
        line, column = document.place(member.start)
        assert text.splitlines()[line - 1][column - 1 :].lstrip('"').startswith(member.name)
    assert document.value("a.b") == [1, 2]
    nested = document.member("a.b")
    assert nested is not None and text[nested.node.start : nested.node.end] == "[1, 2]"


BAD = {
    "nested deeper": (b'{"a":' * 100 + b"1" + b"}" * 100, "ds.json", "nested deeper than 64 levels"),
    "deep list": (b"[" * 200_000, "ds.json", "nested deeper"),
    "deep yaml": (b"[" * 5_000, "a.yaml", "nested deeper than 64 levels"),
    "alias bomb": (
        b"a0: &a0 [x, x]\n"
        + b"".join(b"a%d: &a%d [%s]\n" % (n, n, b", ".join([b"*a%d" % (n - 1)] * 10)) for n in range(1, 9)),
        "a.yaml",
        "aliases counted",
    ),
    "alias of itself": (b"a: &a [*a]\n", "a.yaml", "alias stands inside"),
    "invalid UTF-8": (b'{"a": "\xff"}', "ds.json", "0xff is not UTF-8"),
    "UTF-16": ('{"a": 1}'.encode("utf-16"), "ds.json", "UTF-16"),
    "binary": (b"\x00\x01\x02", "ds.json", "binary"),
    "empty": (b"", "ds.json", "empty"),
    "empty YAML": (b"# nothing\n", "a.yaml", "empty"),
    "list": (b"[1, 2]", "ds.json", "no mapping"),
    "tab": (b"fsdp_config:\n\tfsdp_version: 2\n", "a.yaml", "a tab stands where YAML wants spaces"),
    "not closed": (b'{"a": {"b": 1}', "ds.json", "'{' is not closed"),
    "comment not closed": (b"{ /* never", "ds.json", "comment is not closed"),
    "python object": (b"a: !!python/object/apply:os.system [echo]\n", "a.yaml", "not valid YAML"),
    "long number": (b'{"a": ' + b"9" * 5000 + b"}", "ds.json", "more digits than any library reads"),
    "50 MB": (b'{"a": "' + b"x" * 50_000_000 + b'"}', "ds.json", "larger than 1024 KiB"),
}


@pytest.mark.parametrize("case", sorted(BAD))
def test_bad_input_is_one_clear_error(tmp_path: Path, case: str) -> None:
    content, name, message = BAD[case]
    path = tmp_path / name
    path.write_bytes(content)
    (finding,) = lint_files([path]).findings
    assert (finding.severity, finding.file) == ("error", str(path))
    assert message in finding.message
    assert len(finding.message) < 300


def test_a_folder_a_missing_file_and_one_without_permission(tmp_path: Path) -> None:
    locked = tmp_path / "locked.json"
    locked.write_text("{}")
    locked.chmod(0)
    found = lint_files([tmp_path, tmp_path / "none.json", locked]).findings
    messages = [finding.message for finding in found]
    assert any("is a folder" in message for message in messages)
    assert "no such file" in messages
    if os.geteuid() != 0:
        assert "no permission to read it" in messages
    locked.chmod(stat.S_IRUSR)


def test_crlf_and_a_byte_order_mark_move_no_place(tmp_path: Path) -> None:
    path = tmp_path / "ds.json"
    path.write_bytes('\ufeff{\r\n  "train_batch_size": 8,\r\n  "bogus": 1\r\n}\r\n'.encode())
    finding = next(each for each in lint_files([path]).findings if each.code == "DS101")
    assert (finding.line, finding.column) == (3, 3)


def test_the_kind_of_a_file_is_seen_in_its_keys() -> None:
    for text, name, kind in (
        ('{"gradient_clipp1ng": 1}', "x.json", "deepspeed"),
        ('{"distributed_type": "NO", "num_processes": 1}', "x.json", "accelerate"),
        ('{"output_dir": "o", "learning_rate": 1e-4}', "x.json", "trainer"),
        ('{"fsdp": "full_shard", "fsdp_config": {"fsdp_version": 2}}', "x.json", "trainer"),
        ("num_processes: 2\n", "x.yaml", "accelerate"),
        # Names of a recipe's sections, which hold no words.
        ("model: gpt2\ndata: corpus.csv\nlearning_rate: 0.1\n", "x.yaml", "trainer"),
        # No argument of the Trainer: that one is text or a list.
        ("strategy: fsdp\nfsdp:\n  cpu_offload: false\n", "x.yaml", "accelerate"),
    ):
        parsed = parse_document(text, source=name)
        assert not isinstance(parsed, Unreadable) and parsed.kind == kind


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (
            "mine.yaml",
            "extends: cpu/ddp\ntraining: {}\nlearning_rate: 1.0\n",
            "is a recipe: `gradwire validate`",
        ),
        ("plan.json", '{"backend": "native", "format_version": 1}', "is a document that Gradwire wrote"),
    ],
)
def test_document_of_gradwire_is_named_and_not_taken_for_a_configuration(
    tmp_path: Path, name: str, text: str, said: str
) -> None:
    (tmp_path / name).write_text(text)
    (finding,) = lint_files([tmp_path / name]).findings
    assert finding.code == "RD102"
    assert finding.message.startswith(said)


def test_configuration_with_a_key_of_a_recipe_is_still_one(tmp_path: Path) -> None:
    text = '{"train_batch_size": 8, "zero_optimization": {"stage": 1}, "model": {}}'
    assert isinstance(parse_document(text, source="ds.json"), Document)
