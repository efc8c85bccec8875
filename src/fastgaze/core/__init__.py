"""What every room may use: errors, files, sizes, pictures, operators, specs and their costs. No torch."""
