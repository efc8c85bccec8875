"""What JSON can hold."""

from collections.abc import Mapping, Sequence
from typing import Any

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]
"""A value that is written."""
Document = dict[str, Any]
"""An object that is read by its keys: what ``json.loads`` returns, of which only its reader knows what is where."""
