"""What a multipart form holds."""

from dataclasses import dataclass, field

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from fastgaze.app.server.limits import ApiError
from fastgaze.core.files import printable

_MOST_PARTS = 64
_MOST_NAME = 255


@dataclass
class Form:
    """What a multipart form holds: pictures and text fields."""

    pictures: list[tuple[int, int]] = field(default_factory=list)
    """Where they begin and end in the form's bytes."""
    names: list[str | None] = field(default_factory=list)
    """Of the pictures' files, without folders; None where the client gave none."""
    fields: list[tuple[str, str]] = field(default_factory=list)


@dataclass
class _Part:
    name: str = ""
    file: bytes | None = None
    header: bytes = b""
    value: bytes = b""
    span: tuple[int, int] = (0, 0)


def parse_form(content: bytes, content_type: str) -> Form:
    """The parts of a multipart body: files, or what is called ``image``, are pictures; all others are text fields."""
    boundary = parse_options_header(content_type)[1].get(b"boundary")
    if not boundary:
        raise _bad_form("its Content-Type names no boundary")
    # The parser takes microseconds for everything that looks like a boundary, of which a body can hold millions.
    if content.count(b"--" + boundary) > _MOST_PARTS + 1:
        raise _bad_form(f"it has more than {_MOST_PARTS} parts")
    try:
        parts = _split(content, boundary)
    except (FormParserError, UnicodeDecodeError) as error:
        raise _bad_form("its parts cannot be told apart") from error
    form = Form()
    for part in parts:
        if part.name == "image" or part.file is not None:
            form.pictures.append(part.span)
            form.names.append(_file_name(part.file or b""))
        else:
            form.fields.append((part.name, content[slice(*part.span)].decode("utf-8", "replace")))
    return form


def _split(content: bytes, boundary: bytes) -> list[_Part]:
    parts: list[_Part] = []
    ended = False

    def begin() -> None:
        parts.append(_Part())

    def header_name(data: bytes, start: int, end: int) -> None:
        parts[-1].header += data[start:end]

    def header_value(data: bytes, start: int, end: int) -> None:
        parts[-1].value += data[start:end]

    def header_end() -> None:
        part = parts[-1]
        if part.header.lower() == b"content-disposition":
            options = parse_options_header(part.value)[1]
            part.name = options.get(b"name", b"").decode("utf-8")
            part.file = options.get(b"filename")
        part.header = part.value = b""

    def data(_: bytes, start: int, end: int) -> None:
        parts[-1].span = (start, end)  # all at once, as everything is written at once

    def end() -> None:
        nonlocal ended
        ended = True

    parser = MultipartParser(
        boundary,
        {
            "on_part_begin": begin,
            "on_header_field": header_name,
            "on_header_value": header_value,
            "on_header_end": header_end,
            "on_part_data": data,
            "on_end": end,
        },
    )
    parser.write(content)
    parser.finalize()
    if not ended:
        raise _bad_form("its last boundary is missing, and with it perhaps a part of a picture")
    return parts


def _file_name(given: bytes) -> str | None:
    """A client's own word for a file: its last part, printable, of a length that a file system would take."""
    name = printable(given.decode("utf-8", "replace")).replace("\\", "/").rpartition("/")[2]
    return name[:_MOST_NAME].strip() or None


def _bad_form(reason: str) -> ApiError:
    return ApiError(400, "bad_form", f"the multipart form cannot be read: {reason}")
