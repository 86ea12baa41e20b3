"""The numbers of the OCR pipeline, as the bundle card pins them (`rules`)."""

from itertools import pairwise

from pydantic import BaseModel, ConfigDict, Field, model_validator


class _Rules(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DetectionRules(_Rules):
    long_side: int = Field(ge=64, le=4096, description="pixels to which a page's long side is shrunk, at first")
    small_text: float = Field(ge=0, description="a line's height there below which the page is looked at again, larger")
    most_enlarged: float = Field(ge=1, le=4, description="how far a page smaller than `long_side` is enlarged")
    finest_long_side: int = Field(ge=64, le=4096, description="most pixels of the long side then")
    threshold: float = Field(gt=0, lt=1, description="probability at which a pixel belongs to text")
    box_threshold: float = Field(gt=0, lt=1, description="mean probability at which a region is a line")
    unclip_ratio: float = Field(gt=0, le=4, description="how far a region grows: area times this over perimeter")
    max_boxes: int = Field(ge=1, le=10_000, description="lines of a page; what is found beyond them is left out")


class OrientationRules(_Rules):
    sample: int = Field(ge=1, le=64, description="lines that decide which way is up")
    sure: float = Field(ge=0, le=1, description="mean confidence at which the first way tried is taken")


class RecognitionRules(_Rules):
    shared_widths: tuple[int, ...] = Field(min_length=1, description="widths of crops that share engine calls, rising")
    lone_widths: tuple[int, ...] = Field(description="wider ones, a call each, rising")
    most_rows: int = Field(ge=2, le=64, description="crops in an engine call, at most")
    least_space: float = Field(gt=0, le=1, description="probability at which a doubted space is read")
    min_line_confidence: float = Field(ge=0, le=1, description="a line below it is left out")

    @model_validator(mode="after")
    def _rising(self) -> "RecognitionRules":
        widths = self.shared_widths + self.lone_widths
        if any(a >= b for a, b in pairwise(widths)):
            raise ValueError("widths must rise from shared_widths to lone_widths")
        if any(w % 8 for w in widths):
            raise ValueError("widths must be multiples of 8, the pixels of one time step")
        return self


class OcrRules(_Rules):
    detection: DetectionRules
    orientation: OrientationRules
    recognition: RecognitionRules
    min_confidence: float = Field(ge=0, le=1, description="soft limit: a page below it is UNCERTAIN")
