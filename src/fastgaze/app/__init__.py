"""What a user touches: the command line, the server, the page."""
