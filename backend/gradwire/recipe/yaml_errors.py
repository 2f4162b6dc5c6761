"""Says in a user's words what the YAML parser found wrong."""

from __future__ import annotations

import re

from ruamel.yaml.error import MarkedYAMLError

_BAD_START = re.compile(r"found character '(.+)' that cannot start any token")


def describe_syntax_error(error: MarkedYAMLError) -> str:
    """Return one line that names the fault behind `error` and what to do; the place is the caller's to add."""
    problem = error.problem or "unreadable"
    opened = error.context_mark
    since = f" at line {opened.line + 1}, column {opened.column + 1}" if opened else ""
    bad_start = _BAD_START.fullmatch(problem)
    if bad_start:
        if bad_start.group(1) in ("\t", "\\t"):
            return "a tab: YAML takes spaces only, at the start of a line and between a key and its value"
        return f"an unquoted value cannot start with {bad_start.group(1)}; put it in quotes"
    if problem == "mapping values are not allowed here":
        return (
            "a ':' where no key can be: check this line's indentation and the line above for a missing ':', "
            "or quote a value that holds ': '"
        )
    if problem.startswith("expected '<document start>'"):
        return "this stands outside the document: one closing bracket too many, or a line less indented than the first"
    if problem == "found unexpected end of stream" and "quoted" in (error.context or ""):
        return f"the quote opened{since} is never closed"
    if error.context in ("while parsing a flow sequence", "while parsing a flow mapping"):
        what = "list [" if "sequence" in error.context else "mapping {"
        return f"the {what} opened{since} goes wrong here: {problem}"
    if error.context == "while scanning a simple key" and "could not find expected ':'" in problem:
        return "a key without its ':'"
    if error.context == "while parsing a block mapping":
        return f"this line does not line up with the keys of the mapping that starts{since}"
    context = f" {error.context}{since}" if error.context else ""
    return f"not valid YAML{context}: {problem}"
