"""Page images to text: detection, orientation, recognition, reading order.

`pipeline.OcrPipeline` is the whole of it without a server; `service` puts it on the wire.
"""
