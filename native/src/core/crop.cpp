#include "core/crop.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <vector>

#include "core/clones.h"

namespace affidavit {
namespace {

constexpr double kFarthest = 1e6;  // no page is a million pixels wide
constexpr int kMostSamples = 16;

// Takes (u, v) of the unit square to the page: ((a u + b v + c) / (g u + h v + 1), (d u + e v + f) / (...)).
struct Perspective {
  double a, b, c, d, e, f, g, h;
};

// Heckbert, Fundamentals of Texture Mapping and Image Warping (1989), 2.2.3.
Perspective perspective_of(const Quad& quad) {
  for (const auto& corner : quad) {
    for (const float value : corner) {
      if (!(std::abs(value) <= kFarthest)) throw std::invalid_argument("quad has a corner that is not finite");
    }
  }
  for (int i = 0; i < 4; ++i) {
    const auto &p = quad[i], &q = quad[(i + 1) % 4], &r = quad[(i + 2) % 4];
    const double turn = (double(q[0]) - p[0]) * (double(r[1]) - q[1]) - (double(q[1]) - p[1]) * (double(r[0]) - q[0]);
    if (!(turn > 1e-6)) throw std::invalid_argument("quad is not convex and clockwise from the text's top-left");
  }
  const double x0 = quad[0][0], x1 = quad[1][0], x2 = quad[2][0], x3 = quad[3][0];
  const double y0 = quad[0][1], y1 = quad[1][1], y2 = quad[2][1], y3 = quad[3][1];
  const double dx1 = x1 - x2, dx2 = x3 - x2, sx = x0 - x1 + x2 - x3;
  const double dy1 = y1 - y2, dy2 = y3 - y2, sy = y0 - y1 + y2 - y3;
  const double area = dx1 * dy2 - dx2 * dy1;
  const double g = (sx * dy2 - dx2 * sy) / area;
  const double h = (dx1 * sy - sx * dy1) / area;
  return {x1 - x0 + g * x1, x3 - x0 + h * x3, x0, y1 - y0 + g * y1, y3 - y0 + h * y3, y0, g, h};
}

// Page positions of one row of samples: u[i] along the quad, one v.
AFFIDAVIT_CLONES void positions(const Perspective& p, const double* __restrict u, double v, int count,
                                double* __restrict x, double* __restrict y) {
  for (int i = 0; i < count; ++i) {
    const double w = 1.0 / (p.g * u[i] + p.h * v + 1.0);
    x[i] = (p.a * u[i] + p.b * v + p.c) * w;
    y[i] = (p.d * u[i] + p.e * v + p.f) * w;
  }
}

// A position along one axis as its pixel, the next one, and the weight of the next; beyond the page its edge repeats.
struct Between {
  int low, high;
  float weight;

  Between(double position, int count) {
    const double last = count - 1;
    position = !(position > 0) ? 0 : position > last ? last : position;  // NaN becomes 0 too
    low = static_cast<int>(position);
    high = std::min(low + 1, count - 1);
    weight = static_cast<float>(position - low);
  }
};

template <int kChannels>
inline void sample(const Image& image, double x, double y, float* sum) {
  const Between across(x, image.width), down(y, image.height);
  const std::uint8_t *top = image.row(down.low), *bottom = image.row(down.high);
  const int left = across.low * kChannels, right = across.high * kChannels;
  for (int c = 0; c < kChannels; ++c) {
    const float upper = top[left + c] + across.weight * (float(top[right + c]) - float(top[left + c]));
    const float lower = bottom[left + c] + across.weight * (float(bottom[right + c]) - float(bottom[left + c]));
    sum[c] += upper + down.weight * (lower - upper);
  }
}

// Calls emit(y, sums) for each output row; sums has width * kChannels floats, each the sum of across * down samples.
template <int kChannels, typename Emit>
void sample_rows(const Image& image, const Perspective& perspective, const std::vector<double>& u,
                 const std::vector<double>& v, int width, int height, Emit emit) {
  const int across = static_cast<int>(u.size()) / width, down = static_cast<int>(v.size()) / height;
  std::vector<double> x(u.size()), y(u.size());
  std::vector<float> sums(static_cast<std::size_t>(width) * kChannels);
  for (int row = 0; row < height; ++row) {
    std::fill(sums.begin(), sums.end(), 0.0F);
    for (int j = 0; j < down; ++j) {
      positions(perspective, u.data(), v[row * down + j], static_cast<int>(u.size()), x.data(), y.data());
      for (int column = 0; column < width; ++column) {
        for (int i = column * across; i < (column + 1) * across; ++i) {
          sample<kChannels>(image, x[i], y[i], sums.data() + column * kChannels);
        }
      }
    }
    emit(row, sums.data());
  }
}

double distance(const std::array<float, 2>& a, const std::array<float, 2>& b) {
  return std::hypot(double(a[0]) - b[0], double(a[1]) - b[1]);
}

int samples_for(double ratio) { return ratio > 2 ? std::min(static_cast<int>(std::ceil(ratio)), kMostSamples) : 1; }

// Where `out` output pixels are sampled along an edge of `length` page pixels, in 0..1 of the edge.
std::vector<double> along(double length, int out) {
  const int samples = samples_for(length / out);
  std::vector<double> at;
  at.reserve(static_cast<std::size_t>(out) * samples);
  for (int i = 0; i < out * samples; ++i) at.push_back((i + 0.5) / (double(out) * samples) - 0.5 / length);
  return at;
}

template <int kChannels>
void crop_quad_of(const Image& image, const Quad& quad, int height, int width, std::uint8_t* out) {
  std::vector<double> u, v;
  for (int i = 0; i < width; ++i) u.push_back(i / double(width));
  for (int i = 0; i < height; ++i) v.push_back(i / double(height));
  sample_rows<kChannels>(image, perspective_of(quad), u, v, width, height, [&](int row, const float* sums) {
    std::uint8_t* to = out + static_cast<std::ptrdiff_t>(row) * width * kChannels;
    for (int i = 0; i < width * kChannels; ++i) to[i] = static_cast<std::uint8_t>(sums[i] + 0.5F);
  });
}

template <int kChannels>
void crop_normalize_of(const Image& image, const Quad& quad, const Normalization& normalization, int content_width,
                       const Planes& out) {
  const Perspective perspective = perspective_of(quad);
  const auto u = along(std::max(distance(quad[0], quad[1]), distance(quad[3], quad[2])), content_width);
  const auto v = along(std::max(distance(quad[0], quad[3]), distance(quad[1], quad[2])), out.height);
  const auto samples = static_cast<float>(u.size() / content_width * (v.size() / out.height));
  sample_rows<kChannels>(image, perspective, u, v, content_width, out.height, [&](int row, const float* sums) {
    for (int c = 0; c < 3; ++c) {
      const float gain = normalization.gain[c], offset = normalization.offset[c];
      float* to = out.row(c, row);
      for (int i = 0; i < content_width; ++i) {
        to[i] = sums[i * kChannels + (kChannels == 3 ? c : 0)] / samples * gain + offset;
      }
      std::fill(to + content_width, to + out.width, 0.0F);
    }
  });
}

}  // namespace

void crop_quad(const Image& image, const Quad& quad, int height, int width, std::uint8_t* out) {
  (image.channels == 3 ? crop_quad_of<3> : crop_quad_of<1>)(image, quad, height, width, out);
}

void crop_normalize(const Image& image, const Quad& quad, const Normalization& normalization, int content_width,
                    const Planes& out) {
  (image.channels == 3 ? crop_normalize_of<3> : crop_normalize_of<1>)(image, quad, normalization, content_width, out);
}

}  // namespace affidavit
