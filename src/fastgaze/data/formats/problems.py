"""What a reader does with a file that it cannot use: raise an error, or record a defect and continue."""

from fastgaze.core.errors import DataError


class Problems:
    """Collects defects for ``fastgaze data check``; without ``lenient`` the first one is raised."""

    def __init__(self, lenient: bool = False) -> None:
        self.lenient = lenient
        self.found: list[str] = []

    def add(self, message: str) -> None:
        """Note a defect, or raise it as a DataError."""
        if not self.lenient:
            raise DataError(message)
        self.found.append(message)
