"""``fastgaze site``: the page as static files, with the model in the browser."""

from pathlib import Path
from typing import Annotated

import typer

from fastgaze.app.cli import common


def site(
    out_folder: common.OutFolder,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            "-m",
            help=f"{common.MODEL_HELP} Repeat it for several. By default the default model.",
            autocompletion=common.complete_models,
            show_default=False,
        ),
    ] = None,
    examples: Annotated[
        Path | None,
        typer.Option(help="Folder of pictures that the page offers instead of its own.", show_default=False),
    ] = None,
    runtime: Annotated[
        Path | None,
        typer.Option(
            help="The package of onnxruntime-web as a .tgz file. By default npm fetches it once.", show_default=False
        ),
    ] = None,
    json: common.Json = False,
) -> None:
    """Write the web page as static files that run the model in the browser, offline, and send no picture anywhere."""
    from fastgaze.app.demo import EXAMPLES
    from fastgaze.app.site import build_site
    from fastgaze.core.errors import ArgumentError
    from fastgaze.runtime.zoo import default_name

    if examples is not None and not examples.is_dir():
        raise ArgumentError(f"--examples {examples} is not a folder")
    made = build_site(out_folder, model or [default_name()], examples or EXAMPLES, runtime)
    if json:
        facts = {"folder": str(made.folder), "models": list(made.models), "files": made.files, "bytes": made.bytes}
        common.print_json(facts | {"first_visit": made.first_visit})
        return
    common.report(f"{made.files} files, {made.bytes / 1e6:.0f} MB, in {made.folder}; models: {', '.join(made.models)}")
    common.report(f"look at it: python -m http.server --directory {made.folder}")
