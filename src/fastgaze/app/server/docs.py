"""The OpenAPI document as a page that people can read, without a script."""

import json
import re
from collections.abc import Mapping, Sequence
from html import escape

from fastgaze.core.jsonable import Document, Json

_HOST = re.compile(r"[\w.-]{1,253}(:\d{1,5})?|\[[0-9a-fA-F:.]{2,45}\](:\d{1,5})?", re.ASCII)


def page(document: Document, address: str) -> str:
    """The whole page for people who reach the server at ``address``, such as ``http://127.0.0.1:8000``."""
    sections = [
        _section(path, method, found, address)
        for path, way in document["paths"].items()
        for method, found in way.items()
    ]
    info = document["info"]
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>fastgaze {escape(info["version"])}: the API</title>
<link rel="icon" href="/page/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/page/docs.css">
</head>
<body>
<header><h1>The API of fastgaze {escape(info["version"])}</h1>
<p>{escape(info["summary"])} For programs: <a href="/openapi.json">openapi.json</a>.
Try it: <a href="/">the page</a>.</p></header>
<main>
{"".join(sections)}
</main>
</body>
</html>
"""


def address_of(scheme: str, headers: Mapping[str, str]) -> str:
    """Where the one who asks reaches the server, by what the request says; empty for what cannot be an address.

    A proxy that encrypts says so in ``X-Forwarded-Proto``. Nothing but examples depends on it.
    """
    host, proxy = headers.get("host", ""), headers.get("x-forwarded-proto", "")
    return f"{proxy if proxy in ('http', 'https') else scheme}://{host}" if _HOST.fullmatch(host) else ""


def _section(path: str, method: str, found: Document, address: str) -> str:
    parts = [f"<p>{escape(found['summary'])} {escape(found.get('description', ''))}</p>"]
    if "requestBody" in found:
        parts.append(f"<p>Body: {escape(found['requestBody']['description'])}</p>")
        parts.append(f"<pre><code>{escape(_example(address + path))}</code></pre>")
    if found.get("parameters"):
        rows = [(p["name"], _values(p["schema"]), p["description"]) for p in found["parameters"]]
        parts.append(_table(("option", "values", "meaning"), rows))
    answers = [(status, answer.get("description", "")) for status, answer in found["responses"].items()]
    parts.append(_table(("status", "answer"), answers))
    head = f'<section id="{escape(found["operationId"])}"><h2>{method.upper()} {escape(path)}</h2>'
    return head + "".join(parts) + "</section>\n"


def _example(address: str) -> str:
    """A command that works as it stands, with pictures of one's own."""
    if address.endswith("/compare"):
        return f"curl -F file=@a.png -F file=@b.png '{address}'"
    if address.endswith("/crop"):
        return f"curl --data-binary @photo.jpg '{address}?size=1200x630&format=keep' -o crop.jpg"
    return f"curl --data-binary @photo.jpg '{address}'"


def _values(schema: Document) -> str:
    if "enum" in schema:
        text = ", ".join(map(str, schema["enum"]))
    elif "minimum" in schema:
        text = f"{schema['minimum']} to {schema['maximum']}"
    elif schema["type"] == "boolean":
        text = "true, false"
    else:
        text = "such as " + ", ".join(schema["examples"])
    return text + (f" (unless given: {_written(schema['default'])})" if "default" in schema else "")


def _written(value: Json) -> str:
    """A default as it stands in an address."""
    return json.dumps(value).strip('"')


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    cells = "".join(f"<th scope=col>{escape(name)}</th>" for name in head)
    lines = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{lines}</tbody></table>"
