"""Names of picture files, kept apart from what opens them: the command line looks at names before it loads Pillow."""

SUFFIXES = (
    ".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".ppm", ".pgm", ".pnm", ".avif", ".jp2", ".ico"
)  # fmt: skip
