"""Phrases that were a private dialect of this project and must not come back."""

DIALECT = (
    r"\bgone on with\b",
    r"\bgoes on where it\b",
    r"\bgo on where (it|they)\b",
    r"\bis no (?!longer\b|more\b|less\b|other\b|match\b|need\b|reason\b|such\b|state\b|password\b)\w+",
    r"\bare no (?!longer\b|more\b|less\b|other\b)\w+",
    r"\b(anew|whom|thereof|whereof|hereby|hence)\b",
    r"\bshall\b",
    r"\b(images?|pictures?|frames?|files?|windows?|peaks?|maps?|bytes|seconds|milliseconds|steps?|GFLOP) an? "
    r"(image|picture|frame|file|second|step|worker|request|pixel|ratio|size|core|fold|guide|verb|line|model|layer)\b",
)
"""Regular expressions, searched in help texts, docstrings, comments, messages and pages."""
