"""A document as blocks, and the same blocks as Markdown and as one HTML page.

Text may hold `code`, **bold** and [links](to); nothing else is markup.
"""

import html as escaping
import re
from dataclasses import dataclass
from pathlib import Path

from experiments.reporting.verdicts import Claim, Verdict

STYLE = Path(__file__).with_name("style.css")


@dataclass(frozen=True)
class Heading:
    """Level 1 is the title."""

    text: str
    level: int = 2


@dataclass(frozen=True)
class Text:
    """One paragraph."""

    text: str


@dataclass(frozen=True)
class Points:
    """Sentences that belong together but are read one by one."""

    items: tuple[str, ...]


@dataclass(frozen=True)
class Missing:
    """Something that was not measured yet, and the command that would."""

    what: str
    command: str


@dataclass(frozen=True)
class Command:
    """A shell command to copy."""

    line: str


@dataclass(frozen=True)
class Table:
    """Rows of as many cells as the header has; cells that are numbers are set to the right, and may have several lines.

    about: what the numbers are of: data, images, engine, threads, input size, seeds. It stands above the table.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    about: str


@dataclass(frozen=True)
class Picture:
    """path: from docs/."""

    path: str
    caption: str


Block = Heading | Text | Points | Missing | Command | Table | Picture
Section = tuple[list[Block], list[Claim]]
"""A part of the report, and the claims of the paper that it decides."""


def markdown(blocks: list[Block]) -> str:
    """The document as GitHub's Markdown, ending in a newline."""
    return "\n\n".join(_markdown(block) for block in blocks) + "\n"


def _markdown(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f"{'#' * level} {text}"
        case Missing(what, command):
            return f"**Not measured yet**: {what}. Run `{command}`."
        case Command(line):
            return f"```sh\n{line}\n```"
        case Picture(path, caption):
            return f"![{_plain(caption)}]({path})\n\n{caption}"
        case Table(header, rows, about):
            lines = [header, ("---",) * len(header), *rows]
            return f"{about}\n\n" + "\n".join("| " + " | ".join(cells).replace("\n", "<br>") + " |" for cells in lines)
        case Points(items):
            return "\n".join(f"- {item}" for item in items)
        case Text(text):
            return text


def _plain(caption: str) -> str:
    """The first sentence of a caption without markup: what a picture shows, for those who do not see it."""
    return re.sub(r"[`*]", "", re.split(r"[.](?= |$)", caption, maxsplit=1)[0])


def html(blocks: list[Block]) -> str:
    """The document as one page: its own styles, no scripts, pictures beside it."""
    title = next(block.text for block in blocks if isinstance(block, Heading))
    sections = [block for block in blocks if isinstance(block, Heading) and block.level == 2]
    links = "".join(f'<a href="#{_anchor(s.text)}">{_inline(s.text)}</a>' for s in sections)
    parts = [_html(block) for block in blocks]
    parts.insert(2, f"<nav>{links}</nav>")
    body = "\n".join(parts)
    return (
        _PAGE.replace("{title}", escaping.escape(title)).replace("{style}", STYLE.read_text()).replace("{body}", body)
    )


def _html(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f'<h{level} id="{_anchor(text)}">{_inline(text)}</h{level}>'
        case Missing(what, command):
            return (
                f'<p class="missing"><strong>Not measured yet</strong>: {_inline(what)}. '
                f"Run <code>{escaping.escape(command)}</code>.</p>"
            )
        case Command(line):
            return f"<pre><code>{escaping.escape(line)}</code></pre>"
        case Picture(path, caption):
            image = f'<a href="{path}"><img src="{path}" alt="{escaping.escape(_plain(caption), quote=True)}"></a>'
            return f"<figure>{image}<figcaption>{_inline(caption)}</figcaption></figure>"
        case Table():
            return _table(block)
        case Points(items):
            return "<ul>" + "".join(f"<li>{_inline(item)}</li>" for item in items) + "</ul>"
        case Text(text):
            return f"<p>{_inline(text)}</p>"


def _table(table: Table) -> str:
    columns = zip(*table.rows, strict=True) if table.rows else [()] * len(table.header)
    sides = [' class="number"' if _mostly_numbers(column) else "" for column in columns]
    head = "".join(f"<th{side}>{_inline(cell)}</th>" for side, cell in zip(sides, table.header, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{_side(cell)}>{_inline(cell)}</td>" for cell in row) + "</tr>" for row in table.rows
    )
    # Every column wants about as much room as its longest word; more columns take a smaller print.
    dense = ' class="dense"' if len(table.header) > 7 else ""
    about = f'<p class="about">{_inline(table.about)}</p>'
    return f"{about}<table{dense}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _side(cell: str) -> str:
    if cell in tuple(Verdict):
        return f' class="{cell}"'
    number = re.fullmatch(r"[\d.,e+\-±%x\[\]()* ]+(to [\d.,]+\))?( ms|%)?", cell) and cell.count(" ") < 4
    return ' class="number"' if number else ""


def _mostly_numbers(column: tuple[str, ...]) -> bool:
    """Whether its header stands over numbers."""
    return 2 * sum("number" in _side(cell) for cell in column) > len(column)


def _breakable(code: str) -> str:
    """Paths and module names may be broken after their punctuation, names of models not at all."""
    if not re.search(r"[/ .]", code):
        return code.replace("-", "&#8209;")
    return re.sub(r"(?<=\w)([/_.])(?=\w)", r"\1<wbr>", code)


def _anchor(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _inline(text: str) -> str:
    """Escaped, with code, bold and links."""
    text = escaping.escape(text, quote=False)
    text = re.sub(r"`([^`]+)`", lambda match: f"<code>{_breakable(match[1])}</code>", text)
    text = re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", text)
    text = re.sub(r"(\[[+\-\d.]+,) (?=[+\-\d.]+\])", r"\1&nbsp;", text).replace("\n", "<br>")  # intervals stay whole
    return re.sub(r"\[([^\]]+)\]\(([^)]+)\)", r'<a href="\2">\1</a>', text)


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""
