"""The OpenAPI document as a page that people can read, without a script."""

import json
import re
from collections.abc import Mapping, Sequence
from html import escape

from fastgaze.core.jsonable import Document, Json

_SAMPLES: dict[str, Json] = {"string": "text", "integer": 1, "number": 0.5}
_HOST = re.compile(r"[\w.-]{1,253}(:\d{1,5})?|\[[0-9a-fA-F:.]{2,45}\](:\d{1,5})?", re.ASCII)


def page(document: Document, address: str) -> str:
    """The whole page for people who reach the server at ``address``, such as ``http://127.0.0.1:8000``."""
    schemas = document["components"]["schemas"]
    sections = [
        _section(path, method, found, address, schemas)
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


def _section(path: str, method: str, found: Document, address: str, schemas: Document) -> str:
    parts = [f"<p>{escape(found['summary'])} {escape(found.get('description', ''))}</p>"]
    if "requestBody" in found:
        parts.append(f"<p>Body: {escape(found['requestBody']['description'])}</p>")
        parts.append(f"<pre><code>{escape(_example(address + path))}</code></pre>")
    if found.get("parameters"):
        rows = [(p["name"], _values(p["schema"]), p["description"]) for p in found["parameters"]]
        parts.append(_table(("option", "values", "meaning"), rows))
    answers = [(status, answer.get("description", "")) for status, answer in sorted(found["responses"].items())]
    parts.append(_table(("status", "answer"), answers))
    answer = found["responses"]["200"]["content"]["application/json"]["schema"]
    parts += [_shape(schema["$ref"].rpartition("/")[2], schemas) for schema in answer.get("oneOf", [answer])]
    head = f'<section id="{escape(found["operationId"])}"><h2>{method.upper()} {escape(path)}</h2>'
    return head + "".join(parts) + "</section>\n"


def _shape(name: str, schemas: Document) -> str:
    """What the JSON of an answer looks like; nothing for one that says no more than that it is an object."""
    if "properties" not in schemas[name]:
        return ""
    text = json.dumps(_sample(schemas[name]), indent=2)
    text = re.sub(r"\{\s+([^{}\[\]]+?)\s+\}", _on_one_line, text)
    return f"<details><summary>JSON: {escape(name)}</summary><pre><code>{escape(text)}</code></pre></details>"


def _on_one_line(found: re.Match[str]) -> str:
    """An object without others in it, such as {"x": 0.5, "y": 0.5}, if it is short."""
    short = "{" + re.sub(r",\s+", ", ", found[1]) + "}"
    return short if len(short) < 80 else found[0]


def _sample(schema: Document) -> Json:
    """A value that fits the schema."""
    if "oneOf" in schema:
        return _sample(schema["oneOf"][0])
    if "const" in schema or "enum" in schema:
        return str(schema.get("const", schema.get("enum", [""])[0]))
    kind = schema["type"][0] if isinstance(schema["type"], list) else schema["type"]
    if kind == "object":
        return {name: _sample(found) for name, found in schema.get("properties", {}).items()}
    if kind == "array":
        return [_sample(schema["items"])] * schema.get("minItems", 1)
    return _SAMPLES[kind]


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
