"""Several pictures in one request: each is a task of its own, and each failure a row of its own."""

import asyncio
import json
from dataclasses import replace

from fastgaze.app.server import wire
from fastgaze.app.server.budget import Share
from fastgaze.app.server.limits import ApiError
from fastgaze.app.server.pool import Answer, Pool, Request

_START, _BETWEEN, _END = b'{"results": [', b", ", b"]}"


async def answer_each(pool: Pool, request: Request, parts: wire.Outcome, room: Share) -> Answer | None:
    """The rows of all pictures in their order; None when nobody waits for them any more.

    As many at once as there are light workers. All of them have the time of one request: pictures whose turn does not
    come within it are rows that say so. All but the first come behind those of everybody else, or a crowd of clients
    that send sixteen each would leave one seventeenth of the time to those who send one.
    """
    free = asyncio.Semaphore(pool.light.count)
    later = replace(request, caller=replace(request.caller, known=False, behind=True))
    first = parts.parts[:1]

    async def row(start: int, end: int, name: str) -> bytes | memoryview | None:
        task = replace(request.task, options=parts.options, query=[], content_type="", name=name)
        async with free:
            one = request if [start, end] in first else later
            return await _row(pool, replace(one, task=task, content=whole[start:end]), room)

    whole = memoryview(request.content)
    async with asyncio.TaskGroup() as group:
        named = zip(parts.parts, parts.names, strict=True)
        tasks = [group.create_task(row(start, end, name)) for (start, end), name in named]
    rows = [task.result() for task in tasks]
    found = [row for row in rows if row is not None]
    if len(found) < len(rows):
        return None
    return Answer(memoryview(_START + _BETWEEN.join(found) + _END), "application/json")


async def _row(pool: Pool, request: Request, room: Share) -> bytes | memoryview | None:
    """One picture's answer or error, as JSON, with its name."""
    own = room.budget.share()
    try:
        answer = await pool.run(request, own)
        if not isinstance(answer, Answer):
            return None
        own.keep(len(answer.content))
        room.absorb(own)
        return answer.content
    except ApiError as error:
        return json.dumps({"name": request.task.name, **error.to_json()}).encode()
    finally:
        own.release()
