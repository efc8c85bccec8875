"""Phrases that were a private dialect of this project and must not come back."""

_UNITS = (
    "images?|pictures?|frames?|files?|windows?|peaks?|maps?|bytes|bits|pixels|seconds|milliseconds|steps?|GFLOP|MiB"
)
_PER = (
    "image|picture|frame|file|second|step|worker|request|pixel|ratio|core|fold|guide|verb|line|layer|degree|axis|cell"
)
DIALECT = (
    r"\bgone on with\b",
    r"\bgo(es)? on where (it|they)\b",
    r"(?<![Tt]here )\b(is|are|was|were) no (?!longer\b|more\b|less\b|better\b|worse\b|further\b|other\b|such\b)\w+",
    r"\b(anew|thereof|whereof|hereby|hence)\b",
    r"\bshall\b",
    rf"\b(?i:{_UNITS}) an? ({_PER})\b",
    r"\bHEIGHTxWIDTH\b",
)
"""Regular expressions, searched in help texts, docstrings, comments, messages and pages."""
