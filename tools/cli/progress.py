"""Progress on standard error, for people: pages done, pages a second, time left. Nothing when it is not a terminal."""

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from affidavit.ingress.v1 import document_pb2 as ingress_pb2


class _PagesPerSecond(ProgressColumn):
    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:.1f} pages/s", style="cyan")


class DocumentProgress:
    """Bars for the documents being read."""

    def __init__(self, console: Console, *, enabled: bool) -> None:
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[count]}"),
            _PagesPerSecond(),
            TimeRemainingColumn(compact=True),
            console=console,
            transient=True,
            disable=not enabled,
        )

    def __enter__(self) -> "DocumentProgress":
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def add(self, name: str) -> TaskID:
        task = self._progress.add_task(name, total=None, count="starting")
        return task

    def update(self, task: TaskID, progress: ingress_pb2.Progress) -> None:
        if not progress.selected_count:
            self._progress.update(task, count=f"{progress.received_bytes / 1e6:.1f} MB sent")
            return
        self._progress.update(
            task,
            total=progress.selected_count,
            completed=progress.done_count,
            count=f"{progress.done_count}/{progress.selected_count}",
        )

    def remove(self, task: TaskID) -> None:
        self._progress.remove_task(task)
