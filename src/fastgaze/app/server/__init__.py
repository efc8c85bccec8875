"""The web page and the HTTP API of ``fastgaze serve``, on starlette and uvicorn.

limits    what a client may ask for, and the error that says it asked for more
body      the request's body, read within the limits; multipart forms
options   what a request asks for, checked
jobs      from bytes and options to the bytes of the answer; runs in a worker thread
pool      the worker threads, and how many requests are in flight
openapi   the API as an OpenAPI 3.1 document
site      the page's files and the example pictures, from memory
api       the routes
run       sockets, logging and shutdown
"""
