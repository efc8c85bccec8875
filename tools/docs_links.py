"""A hook of mkdocs: GitHub's Markdown, links that leave docs/, pages of the project at the root, and wide pages.

The pages are written to be read in the repository as well, so they link to ../results/speed.json or ../src/. On the
site such a link goes to the repository, at the address that the setting ``repo_url`` or the variable
``FASTGAZE_REPOSITORY`` gives, and is plain text if there is none.
"""

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel

ROOT = Path(__file__).parents[1]
WIDE = ("results.md",)
"""Pages of wide tables, which get the room of the navigation and of the table of contents."""
PROJECT = {"contributing": "CONTRIBUTING.md", "changelog": "CHANGELOG.md", "security": "SECURITY.md"}
_MARKED = re.compile(r"^(```\w+) run$")
"""A block of code that the tests run (tests/docs)."""
_STARTS = {"list": re.compile(r"\s*([-*]|\d+\.) "), "table": re.compile(r"\|")}
_IMAGE = re.compile(r'(<img src=")(images/)')
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s#]+)(#[^)]*)?\)")


def on_files(files: Files, config: MkDocsConfig, **_: Any) -> Files:
    """Add the pages of the project, as if they lay in docs/project."""
    for name, source in PROJECT.items():
        text = (ROOT / source).read_text()
        files.append(File.generated(config, f"project/{name}.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: MkDocsConfig, files: Files) -> str:
    """Send links that leave the site to the repository; give wide pages their room; say it in mkdocs' Markdown."""
    if page.file.src_uri in WIDE:
        page.meta["hide"] = ["navigation", "toc"]
    place = _place(page.file.src_uri)

    def resolve(match: re.Match[str]) -> str:
        words, target, anchor = match[1], match[2], match[3] or ""
        if "://" in target or target.startswith("mailto:"):
            return match[0]
        path = Path(os.path.normpath(place / target))
        inside = _on_site(path, files)
        if inside is not None:
            return f"[{words}]({os.path.relpath(inside, Path(page.file.src_uri).parent)}{anchor})"
        if not (ROOT / path).exists():
            return match[0]  # mkdocs warns about it
        repository = os.environ.get("FASTGAZE_REPOSITORY", config.repo_url or "")
        return f"[{words}]({repository.rstrip('/')}/blob/main/{path}{anchor})" if repository else words

    # mkdocs leaves HTML as it is, and puts a page one folder below where its Markdown lies.
    up = "../" * page.url.count("/")
    return _LINK.sub(resolve, _IMAGE.sub(rf"\g<1>{up}\g<2>", for_mkdocs(markdown)))


def for_mkdocs(markdown: str) -> str:
    """GitHub's Markdown as mkdocs wants it: an empty line before lists and tables, and one word behind a fence."""
    lines, fenced, before = [""], False, ""
    for line in markdown.splitlines():
        kind = "" if fenced else next((kind for kind, start in _STARTS.items() if start.match(line)), "")
        inside = fenced or lines[-1].startswith(" ")  # of code, or of an item that goes on
        if kind and kind != before and lines[-1] and not inside:
            lines.append("")
        fenced ^= line.lstrip().startswith("```")
        lines.append(_MARKED.sub(r"\1", line))
        before = kind
    return "\n".join(lines[1:]) + "\n"


def _place(source: str) -> Path:
    """The folder of a page, below the repository."""
    return Path() if source.startswith("project/") else (Path("docs") / source).parent


def _on_site(path: Path, files: Files) -> str | None:
    """The page or picture of the site that a path of the repository is, None if it is none."""
    known = {source: f"project/{name}.md" for name, source in PROJECT.items()}
    found = known.get(path.as_posix())
    if found is None and path.parts[:1] == ("docs",):
        found = Path(*path.parts[1:]).as_posix()
    file = None if found is None else files.get_file_from_path(found)
    return found if file is not None and file.inclusion is not InclusionLevel.EXCLUDED else None
