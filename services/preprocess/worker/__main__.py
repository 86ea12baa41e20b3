"""The worker's life: import, be confined, then open and draw one document after another until the service hangs up."""

import array
import gc
import os
import socket
import sys
import traceback

from affidavit.services.preprocess import protocol
from affidavit.services.preprocess.protocol import Closed, Draw, Open, Opened, Ready, Refused, WorkerLimits
from affidavit.services.preprocess.worker import pdf, picture, sandbox
from affidavit.services.preprocess.worker.area import Area
from affidavit.services.preprocess.worker.document import Document, open_document
from affidavit.services.preprocess.worker.refusal import Refusal


def main(arguments: list[str]) -> None:
    channel_fd, area_fd, parent, limits_json = arguments
    sandbox.die_with(int(parent))
    limits = WorkerLimits.from_json(limits_json)
    channel = socket.socket(fileno=int(channel_fd))
    area = Area(int(area_fd), limits.area_bytes)
    pdf.initialise()
    picture.initialise()
    os.dup2(1, 2)  # to nowhere: what a parser prints may be a document's content
    features = sandbox.confine(limits)
    channel.send(protocol.encode(Ready(features, pdf.VERSION, picture.VERSION)))
    serve(channel, area, limits)


def serve(channel: socket.socket, area: Area, limits: WorkerLimits) -> None:
    """Answer requests until the service closes the channel."""
    document: Document | None = None
    while True:
        request, descriptor = receive(channel)
        if request is None:
            return
        try:
            match request:
                case Open(passwords):
                    document = open_document(descriptor, passwords, limits)
                    reply = Opened(document.page_count, document.media_type)
                case Draw(page) if document:
                    reply = document.draw(page, area)
                case _:
                    if document:
                        document.close()
                    document = None
                    gc.collect()
                    reply = Closed()
        except Refusal as refusal:
            reply = Refused(refusal.reason)
        channel.send(protocol.encode(reply))


def receive(channel: socket.socket) -> tuple[protocol.Request | None, int]:
    """The next request, None at the end, and the file descriptor that came with it, -1 without one."""
    data, ancillary, _, _ = channel.recvmsg(protocol.MAX_MESSAGE_BYTES, socket.CMSG_SPACE(4), socket.MSG_CMSG_CLOEXEC)
    descriptors = array.array("i")
    for level, kind, payload in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(payload[: len(payload) - len(payload) % descriptors.itemsize])
    return protocol.decode_request(data) if data else None, descriptors[0] if descriptors else -1


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)  # no interpreter shutdown: nothing here is worth saving, and the filter forbids some of it
