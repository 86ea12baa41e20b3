#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>

#include <cmath>
#include <memory>

#include "arrays.h"
#include "bind.h"
#include "core/crop.h"
#include "core/resize.h"

namespace nb = nanobind;

namespace affidavit {
namespace {

constexpr int kLongestSide = 1 << 17;
using Channels = std::array<float, 3>;

Image image_of(const ReadArray& array) {
  const bool gray = array.ndim() == 2;
  expect<std::uint8_t>(array, "image", gray ? 2 : 3, gray ? 1 : 2, "uint8 (H, W) or (H, W, 3)");
  const std::size_t channels = gray ? 1 : array.shape(2);
  if (channels != 1 && channels != 3) throw nb::value_error("image must have 1 or 3 channels");
  if (!array.shape(0) || !array.shape(1)) throw nb::value_error("image is empty");
  if (array.shape(0) > kLongestSide || array.shape(1) > kLongestSide) {
    throw nb::value_error("image is longer than 131072 pixels");
  }
  return {static_cast<const std::uint8_t*>(array.data()), static_cast<int>(array.shape(0)),
          static_cast<int>(array.shape(1)), static_cast<int>(channels), array.stride(0)};
}

Quad quad_of(const ReadArray& array) {
  expect<float>(array, "quad", 2, 2, "float32 (4, 2)");
  if (array.shape(0) != 4 || array.shape(1) != 2) throw nb::value_error("quad must be float32 (4, 2)");
  const auto* value = static_cast<const float*>(array.data());
  Quad quad;
  for (int i = 0; i < 4; ++i) quad[i] = {value[2 * i], value[2 * i + 1]};
  return quad;
}

Normalization normalization_of(const Channels& mean, const Channels& std, float scale) {
  Normalization normalization;
  for (int c = 0; c < 3; ++c) {
    normalization.gain[c] = scale / std[c];
    normalization.offset[c] = -mean[c] / std[c];
    if (!std::isfinite(normalization.gain[c]) || !std::isfinite(normalization.offset[c])) {
      throw nb::value_error("mean, std and scale must be finite, std not zero");
    }
  }
  return normalization;
}

Planes planes_of(const WriteArray& batch, std::int64_t n, int content_w) {
  expect<float>(batch, "batch", 4, 3, "float32 (N, 3, H, W)");
  if (batch.shape(1) != 3) throw nb::value_error("batch must be float32 (N, 3, H, W)");
  if (n < 0 || n >= static_cast<std::int64_t>(batch.shape(0))) throw nb::value_error("n must be 0 <= n < N");
  if (!batch.shape(2) || content_w < 1 || content_w > static_cast<std::int64_t>(batch.shape(3))) {
    throw nb::value_error("content_w must be 1 <= content_w <= W, and H at least 1");
  }
  return {static_cast<float*>(batch.data()) + n * batch.stride(0), static_cast<int>(batch.shape(2)),
          static_cast<int>(batch.shape(3))};
}

void expect_size(int height, int width) {
  if (height < 1 || width < 1 || height > kLongestSide || width > kLongestSide) {
    throw nb::value_error("out_h and out_w must be 1 to 131072");
  }
}

// A new numpy array that owns `data`.
template <typename T>
nb::ndarray<nb::numpy, T> owned(std::unique_ptr<T[]> data, std::initializer_list<std::size_t> shape) {
  T* raw = data.get();
  nb::capsule owner(raw, [](void* p) noexcept { delete[] static_cast<T*>(p); });
  data.release();
  return nb::ndarray<nb::numpy, T>(raw, shape, owner);
}

nb::ndarray<nb::numpy, float> resized(const ReadArray& array, int out_h, int out_w, const Channels& mean,
                                      const Channels& std, float scale, bool area) {
  const Image image = image_of(array);
  const Normalization normalization = normalization_of(mean, std, scale);
  expect_size(out_h, out_w);
  std::unique_ptr<float[]> data(new float[std::size_t{3} * out_h * out_w]);
  {
    nb::gil_scoped_release release;
    resize_normalize(image, area ? Filter::kArea : Filter::kLinear, normalization, out_w, {data.get(), out_h, out_w});
  }
  return owned(std::move(data), {3, static_cast<std::size_t>(out_h), static_cast<std::size_t>(out_w)});
}

void resized_into(const WriteArray& batch, std::int64_t n, const ReadArray& array, int content_w, const Channels& mean,
                  const Channels& std, float scale, bool area) {
  const Image image = image_of(array);
  const Normalization normalization = normalization_of(mean, std, scale);
  const Planes planes = planes_of(batch, n, content_w);
  nb::gil_scoped_release release;
  resize_normalize(image, area ? Filter::kArea : Filter::kLinear, normalization, content_w, planes);
}

nb::ndarray<nb::numpy, std::uint8_t> cropped(const ReadArray& array, const ReadArray& corners, int out_h, int out_w) {
  const Image image = image_of(array);
  const Quad quad = quad_of(corners);
  expect_size(out_h, out_w);
  const auto height = static_cast<std::size_t>(out_h), width = static_cast<std::size_t>(out_w);
  const auto channels = static_cast<std::size_t>(image.channels);
  std::unique_ptr<std::uint8_t[]> data(new std::uint8_t[height * width * channels]);
  {
    nb::gil_scoped_release release;
    crop_quad(image, quad, out_h, out_w, data.get());
  }
  return array.ndim() == 2 ? owned(std::move(data), {height, width})
                           : owned(std::move(data), {height, width, channels});
}

void cropped_into(const WriteArray& batch, std::int64_t n, const ReadArray& array, const ReadArray& corners,
                  int content_w, const Channels& mean, const Channels& std, float scale) {
  const Image image = image_of(array);
  const Quad quad = quad_of(corners);
  const Normalization normalization = normalization_of(mean, std, scale);
  const Planes planes = planes_of(batch, n, content_w);
  nb::gil_scoped_release release;
  crop_normalize(image, quad, normalization, content_w, planes);
}

}  // namespace

#define IMAGE "numpy.typing.NDArray[numpy.uint8]"
#define FLOATS "numpy.typing.NDArray[numpy.float32]"
#define NORMALIZATION                                                                            \
  "mean: collections.abc.Sequence[float], std: collections.abc.Sequence[float], scale: float = " \
  "0.00392156862745098"

void bind_imaging(nb::module_& m) {
  constexpr float kScale = 1.0F / 255;
  m.def("resize_normalize", &resized, nb::arg("image").noconvert(), nb::arg("out_h"), nb::arg("out_w"), nb::arg("mean"),
        nb::arg("std"), nb::arg("scale") = kScale, nb::kw_only(), nb::arg("area") = false,
        nb::sig("def resize_normalize(image: " IMAGE ", out_h: int, out_w: int, " NORMALIZATION
                ", *, area: bool = False) -> " FLOATS),
        R"(Resizes an image and normalises it: (pixel * scale - mean[c]) / std[c].

Args:
    image: uint8 (H, W) or (H, W, 3), rows may have gaps. Gray becomes three equal channels.
    area: False samples as cv2.INTER_LINEAR (half-pixel centres), True averages as cv2.INTER_AREA where it shrinks.
        The result is not rounded to whole gray levels between the two steps.

Returns:
    float32 (3, out_h, out_w), channels in the image's order.

Raises:
    ValueError: another shape or element type, an empty image, a size outside 1 to 131072, std zero.)");
  m.def("resize_normalize_into", &resized_into, nb::arg("batch").noconvert(), nb::arg("n"),
        nb::arg("image").noconvert(), nb::arg("content_w"), nb::arg("mean"), nb::arg("std"), nb::arg("scale") = kScale,
        nb::kw_only(), nb::arg("area") = false,
        nb::sig("def resize_normalize_into(batch: " FLOATS ", n: int, image: " IMAGE ", content_w: int, " NORMALIZATION
                ", *, area: bool = False) -> None"),
        R"(As resize_normalize, into item n of a batch tensor: content_w columns, then zeros to the tensor's width.

Args:
    batch: float32 (N, 3, H, W), writable; only item n is written.
    content_w: width that the image is resized to, 1 to W; its height becomes H.)");
  m.def("crop_quad", &cropped, nb::arg("image").noconvert(), nb::arg("quad").noconvert(), nb::arg("out_h"),
        nb::arg("out_w"),
        nb::sig("def crop_quad(image: " IMAGE ", quad: " FLOATS ", out_h: int, out_w: int) -> " IMAGE),
        R"(Cuts a quad out of an image and makes it upright: cv2.getPerspectiveTransform with the corners of the output
at (0, 0), (w, 0), (w, h), (0, h), then cv2.warpPerspective with INTER_LINEAR and BORDER_REPLICATE.

Args:
    quad: float32 (4, 2), (x, y) in pixels, clockwise from the text's top-left.

Returns:
    uint8 (out_h, out_w) or (out_h, out_w, 3), as the image.

Raises:
    ValueError: another shape or element type, or a quad that is not finite, convex and clockwise.)");
  m.def("crop_normalize_into", &cropped_into, nb::arg("batch").noconvert(), nb::arg("n"), nb::arg("image").noconvert(),
        nb::arg("quad").noconvert(), nb::arg("content_w"), nb::arg("mean"), nb::arg("std"), nb::arg("scale") = kScale,
        nb::sig("def crop_normalize_into(batch: " FLOATS ", n: int, image: " IMAGE ", quad: " FLOATS
                ", content_w: int, " NORMALIZATION ") -> None"),
        R"(From page pixels to item n of a batch tensor in one pass: crop, resize to (H, content_w), normalise, pad.

The quad is sampled where a crop in its own size, resized as cv2.INTER_LINEAR does, would be. Along an axis with more
than 2 page pixels to an output pixel, each output pixel is the mean of ceil(ratio) samples, 16 at most.

Args:
    batch: float32 (N, 3, H, W), writable; only item n is written; columns from content_w on are zero.
    quad: float32 (4, 2), (x, y) in pixels, clockwise from the text's top-left.

Raises:
    ValueError: as crop_quad and resize_normalize_into.)");
}

}  // namespace affidavit
