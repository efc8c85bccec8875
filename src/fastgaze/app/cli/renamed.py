"""Spellings that earlier versions took, and what to type instead."""

from collections.abc import Sequence

_VERBS = {
    "teacher": "workshop teacher",
    "distill": "workshop distill",
    "maps": "workshop soft-targets",
    "prune": "workshop prune",
    "narrow": "workshop narrow",
    "sweep": "workshop sweep",
    "data formats": "data layouts",
}
_OPTIONS = {
    "predict --output-size": "--size WIDTHxHEIGHT",
    "batch --ratios": "--ratio, given once for each ratio",
    "batch --crops": "--candidates",
    "batch --density": "--size WIDTHxHEIGHT",
    "evaluate --format": "--layout",
    "train --format": "--layout",
    "data convert --to": "--format",
    "workshop distill --start": "`fastgaze workshop tune --start`",
}
_REMOVED = {"export --to": "`fastgaze export` always writes ONNX; leave out --to"}
_GROUPS = ("data", "workshop")


def new_spelling(arguments: Sequence[str]) -> str | None:
    """A sentence that names the new spelling, if ``arguments`` of the command line hold an old one."""
    words = [word for word in arguments if word not in ("--debug", "--quiet", "-q")]
    verb = " ".join(words[: 2 if words[:1] and words[0] in _GROUPS else 1])
    options = [word.partition("=")[0] for word in words if word.startswith("--")]
    if verb == "distill" and "--start" in options:
        return "`fastgaze distill --start` is now `fastgaze workshop tune --start`"
    if verb in _VERBS:
        return f"`fastgaze {verb}` is now `fastgaze {_VERBS[verb]}`"
    for old in (f"{verb} {option}" for option in options):
        if old in _REMOVED:
            return _REMOVED[old]
        if old in _OPTIONS:
            return f"`fastgaze {old}` is now {_OPTIONS[old]}"
    return None
