"""The witness over HTTP: `POST /add-checkpoint`."""

from aiohttp import web

from affidavit.libs.evidence.submission import SIZE_TYPE
from affidavit.tools.witness.witness import Status, Witness

_MAX_BODY_BYTES = 1 << 17  # a note has at most 64 KiB, its proof 63 lines


def application(witness: Witness) -> web.Application:
    """An aiohttp application; one event loop, so that submissions are judged one after the other."""

    async def add_checkpoint(request: web.Request) -> web.Response:
        answer = witness.add_checkpoint(await request.read())
        kind = SIZE_TYPE if answer.status is Status.CONFLICT else "text/plain"
        return web.Response(status=answer.status, body=answer.text.encode(), headers={"Content-Type": kind})

    app = web.Application(client_max_size=_MAX_BODY_BYTES)
    app.router.add_post("/add-checkpoint", add_checkpoint)
    return app
