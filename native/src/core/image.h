// What image work reads and writes: views of other people's memory, and the numbers between them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace affidavit {

// Pixels of a page: 8-bit, 1 (gray) or 3 (BGR) channels side by side, rows `row_stride` bytes apart.
struct Image {
  const std::uint8_t* data;
  int height;
  int width;
  int channels;
  std::ptrdiff_t row_stride;

  const std::uint8_t* row(int y) const { return data + y * row_stride; }
};

// One item of a batch tensor: three planes (C, H, W) of floats, without gaps.
struct Planes {
  float* data;
  int height;
  int width;

  float* row(int channel, int y) const { return data + (static_cast<std::ptrdiff_t>(channel) * height + y) * width; }
};

// A tensor's value is (pixel * scale - mean[c]) / std[c], computed as pixel * gain[c] + offset[c] in float32.
struct Normalization {
  std::array<float, 3> gain;
  std::array<float, 3> offset;
};

// Corners clockwise from the text's own top-left, (x, y) in pixels, pixel centres at whole numbers.
using Quad = std::array<std::array<float, 2>, 4>;

}  // namespace affidavit
