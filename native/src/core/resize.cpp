#include "core/resize.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/clones.h"

namespace affidavit {
namespace {

// Along one axis, output i is the sum of weight[k] * input[first[i] + k - begin[i]] for k in begin[i]..begin[i+1].
struct Taps {
  std::vector<int> first;
  std::vector<int> begin{0};
  std::vector<float> weight;

  int count(int i) const { return begin[i + 1] - begin[i]; }
};

void add_linear(Taps& taps, int i, int in, double ratio) {
  const double centre = std::clamp((i + 0.5) * ratio - 0.5, 0.0, in - 1.0);
  const int left = std::clamp(static_cast<int>(centre), 0, std::max(in - 2, 0));
  taps.first.push_back(left);
  taps.weight.push_back(static_cast<float>(1.0 - (centre - left)));
  // The second tap of a one-pixel axis would lie outside; it repeats the first with weight zero.
  if (in > 1) taps.weight.push_back(static_cast<float>(centre - left));
}

void add_area(Taps& taps, int i, int in, double ratio) {
  const double from = i * ratio;
  const double to = std::min((i + 1) * ratio, static_cast<double>(in));
  const int left = std::min(static_cast<int>(from), in - 1);
  taps.first.push_back(left);
  for (int k = left; k < in; ++k) {
    const double covered = std::min(to, k + 1.0) - std::max(from, static_cast<double>(k));
    // A sliver is the ratio's rounding, not a pixel; but an output has at least one tap.
    if (k > left && covered < 1e-9) break;
    taps.weight.push_back(static_cast<float>(covered / (to - from)));
  }
}

Taps make_taps(int in, int out, Filter filter) {
  Taps taps;
  const double ratio = static_cast<double>(in) / out;
  for (int i = 0; i < out; ++i) {
    if (filter == Filter::kArea && in > out) {
      add_area(taps, i, in, ratio);
    } else {
      add_linear(taps, i, in, ratio);
    }
    taps.begin.push_back(static_cast<int>(taps.weight.size()));
  }
  return taps;
}

// planes[c][x] (+)= weight * pixels[x * kChannels + c]
template <int kChannels, bool kAdd>
inline void accumulate(const std::uint8_t* __restrict pixels, int width, float weight, float* __restrict planes) {
  for (int c = 0; c < kChannels; ++c) {
    float* plane = planes + static_cast<std::ptrdiff_t>(c) * width;
    for (int x = 0; x < width; ++x) {
      const float value = weight * static_cast<float>(pixels[x * kChannels + c]);
      plane[x] = kAdd ? plane[x] + value : value;
    }
  }
}

AFFIDAVIT_CLONES void set_gray(const std::uint8_t* pixels, int width, float weight, float* planes) {
  accumulate<1, false>(pixels, width, weight, planes);
}
AFFIDAVIT_CLONES void add_gray(const std::uint8_t* pixels, int width, float weight, float* planes) {
  accumulate<1, true>(pixels, width, weight, planes);
}
AFFIDAVIT_CLONES void set_bgr(const std::uint8_t* pixels, int width, float weight, float* planes) {
  accumulate<3, false>(pixels, width, weight, planes);
}
AFFIDAVIT_CLONES void add_bgr(const std::uint8_t* pixels, int width, float weight, float* planes) {
  accumulate<3, true>(pixels, width, weight, planes);
}

// One output row of one plane from the row already blended vertically.
AFFIDAVIT_CLONES void two_taps(const float* __restrict in, const int* __restrict first, const float* __restrict weight,
                               int width, float gain, float offset, float* __restrict out) {
  for (int x = 0; x < width; ++x) {
    const float* at = in + first[x];
    out[x] = (at[0] * weight[2 * x] + at[1] * weight[2 * x + 1]) * gain + offset;
  }
}

void any_taps(const float* in, const Taps& taps, int width, float gain, float offset, float* out) {
  for (int x = 0; x < width; ++x) {
    const float* at = in + taps.first[x];
    const float* weight = taps.weight.data() + taps.begin[x];
    float sum = 0;
    for (int k = 0; k < taps.count(x); ++k) sum += at[k] * weight[k];
    out[x] = sum * gain + offset;
  }
}

}  // namespace

// Rows first: blending whole input rows is a plain vector loop, and the gather along x then runs once an output row.
void resize_normalize(const Image& image, Filter filter, const Normalization& normalization, int content_width,
                      const Planes& out) {
  const Taps columns = make_taps(image.width, content_width, filter);
  const Taps rows = make_taps(image.height, out.height, filter);
  const bool linear = image.width > 1 && !(filter == Filter::kArea && image.width > content_width);
  const auto set = image.channels == 3 ? set_bgr : set_gray;
  const auto add = image.channels == 3 ? add_bgr : add_gray;
  std::vector<float> blended(static_cast<std::size_t>(image.width) * image.channels);
  for (int y = 0; y < out.height; ++y) {
    for (int k = 0; k < rows.count(y); ++k) {
      const auto blend = k == 0 ? set : add;
      blend(image.row(rows.first[y] + k), image.width, rows.weight[rows.begin[y] + k], blended.data());
    }
    for (int c = 0; c < 3; ++c) {
      const float* in = blended.data() + (image.channels == 3 ? static_cast<std::ptrdiff_t>(c) * image.width : 0);
      float* to = out.row(c, y);
      if (linear) {
        two_taps(in, columns.first.data(), columns.weight.data(), content_width, normalization.gain[c],
                 normalization.offset[c], to);
      } else {
        any_taps(in, columns, content_width, normalization.gain[c], normalization.offset[c], to);
      }
      std::fill(to + content_width, to + out.width, 0.0F);
    }
  }
}

}  // namespace affidavit
