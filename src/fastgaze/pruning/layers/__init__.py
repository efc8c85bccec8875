"""What layers are: how each kind is sliced, what widths it has, what it costs and where its mask sits."""
