"""How a parser says no."""


class Refusal(Exception):
    """The document or the page cannot be read; `reason` is one of protocol.REASONS."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
