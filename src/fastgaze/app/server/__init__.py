"""The web page and the HTTP API of ``fastgaze serve``, on starlette and uvicorn.

In the server's process, which never decodes anything:

limits      what a client may ask for, and the error that says it asked for more
budget      a bound on bytes that clients make the server hold
connection  HTTP/1.1 over one connection, so that no client holds up the others
body        a request's body, read within the limits
answers     answers, written as fast as the client reads them
options     what a request asks for, checked
access      who may ask: hosts, origins, tokens, signed addresses, rates
turns       whose turn it is when there is more work than workers
pool        which task goes to which kind of worker, and what happens when one dies
lanes       the workers of one kind, and one more that stands by
workers     the processes as the server sees them
several     several pictures in one request
metrics     counts for Prometheus
openapi     the API as an OpenAPI 3.1 document; docs: the same for people
site        the page's files and the example pictures, from memory
api         the routes
run         sockets, logging and shutdown

In processes that can be killed:

nursery     loads the models and forks the workers
wire        messages between the server and the workers
forms       what a multipart form holds
jobs        from bytes and options to the bytes of the answer
"""
